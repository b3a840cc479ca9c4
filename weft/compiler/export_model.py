"""Writing compiled code as an artifact."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.codegen import backend_of
from weft.compiler.fallbacks import kernel_names, kernels_exported_as_met
from weft.compiler.options import CompileOptions
from weft.compiler.precision import at_precision
from weft.compiler.program.code import ModelCode
from weft.compiler.program.constants import SharedBlock
from weft.compiler.vm.specialize import with_met_kernels
from weft.compiler.vm.symbolic import with_symbolic_kernels
from weft.export import ExportedEntry, NativeProgram, PortableText, export_c, write_artifact
from weft.export.signing import signer
from weft.frontend.weights import import_with_names
from weft.ir.json.format import save_json
from weft.runtime.artifact_contents import CONSTANTS, PORTABLE_CONSTANTS
from weft.runtime.artifact_trial import check_in_child, trial_of
from weft.runtime.devices.sim.description import SimDevice
from weft.runtime.executable import Executable
from weft.runtime.launchers import launcher_of
from weft.runtime.vm.kernels import KernelTable
from weft.runtime.vm.launcher import VirtualMachine
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, OptionError, TargetError
from weft.support.fallback import FallbackLog, recording, report
from weft.target import CpuTarget
from weft.target.cpus import named_cpus

# Smaller constants are part of the text of a portable form.
_INLINE_BYTES = 256
FORMATS = ("weft", "c", "lib")
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LEVELS = {level: f"x86-64-{level}" for level in ("v2", "v3", "v4")}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of ``Executable.export`` beside the format."""

    levels: tuple[str, ...] = ()
    portable: bool = True
    check: bool = True
    sign: Callable[[str], Mapping[str, bytes]] | None = None

    @staticmethod
    def make(levels: Sequence[str] | None = None, *, portable: bool = True, check: bool = True,
             sign: object = None) -> ExportOptions:
        """Checked options; ``OptionError`` for levels that are no names of CPUs, and no keys."""
        if isinstance(levels, str) or not all(isinstance(one, str) for one in levels or ()):
            raise OptionError("levels cannot be used", got=repr(levels),
                              expected='names of CPUs: ["v2", "v3", "v4"]')
        named = tuple(dict.fromkeys(_LEVELS.get(one, one) for one in levels or ()))
        return ExportOptions(named, portable, check, None if sign is None else signer(sign))


class Origin(Protocol):
    """Where a module came from: its code, and what compiles it again."""

    @property
    def compiler(self) -> Any: ...
    @property
    def code(self) -> ModelCode: ...
    @property
    def options(self) -> CompileOptions: ...


def origin_of(module: Executable) -> Origin:
    """Where a module came from; ``ArtifactError`` for one that this process did not compile."""
    found: Any = module.recompiler
    if not hasattr(type(found), "code"):
        raise ArtifactError("a loaded artifact cannot be exported again",
                            got=module.manifest.signature(),
                            help="use the executable that weft.compile returns")
    origin: Origin = found
    return origin


@dataclass(frozen=True, slots=True)
class ModuleWithState:
    """A module to export, and values that its states start with."""

    module: Executable
    states: Mapping[str, np.ndarray] = field(default_factory=dict)


def export_modules(path: str | os.PathLike[str], modules: Mapping[str, ModuleWithState],
                   options: ExportOptions, *, kind: str = "",
                   facts: Mapping[str, Any] | None = None) -> None:
    """Write modules as the entry points of one file, over one set of weights.

    ``kind`` and ``facts`` are those of ``weft.runtime.artifact_contents.Contents``.
    """
    for name in modules:
        if not isinstance(name, str) or not _ENTRY_NAME.fullmatch(name):
            raise OptionError("an entry point has a name that no file could have", got=repr(name),
                              expected="letters, digits, _ . and -")
    has_several = len(modules) > 1 or any(len(one.module.sizes) > 1 for one in modules.values())
    writer = _Writer(options, is_shared=has_several or bool(options.levels))
    entries = {name: writer.entry(one) for name, one in modules.items()}
    check = None
    if options.check:
        trials = {name: trial_of(one.module, one.states) for name, one in modules.items()}
        check = partial(check_in_child, trials=trials)
    write_artifact(path, entries, _buffers(writer.native), _buffers(writer.portable), kind=kind,
                   facts=facts, check=check, sign=options.sign)


def export_as_c(code: ModelCode, options: CompileOptions, path: str | os.PathLike[str], *,
                as_library: bool) -> None:
    """Write the program for C (``format="c"``), or as libraries (``format="lib"``)."""
    code.check_portable()
    manifest = code.manifest
    target = options.target_of(manifest)
    backend = backend_of(target)
    if launcher_of(manifest).runs_devices_at_once:
        raise TargetError("a C program runs on one device",
                          got=", ".join(map(str, options.devices)),
                          help='export format="weft", or compile without devices')
    # The last objects are the runtime support of weft.load, not of C programs.
    own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
    export_c(path, manifest, own, code.constants, target, as_library=as_library)


class _Writer:
    """Makes the entry points of a file, whose weights go to two blocks.

    ``native`` is that of native code, ``portable`` has what portable forms need beside it.
    """

    def __init__(self, options: ExportOptions, *, is_shared: bool) -> None:
        self._options = options
        self._is_shared = is_shared
        self.native = SharedBlock()
        self.portable = SharedBlock()

    def entry(self, given: ModuleWithState) -> ExportedEntry:
        """The entry point of a module."""
        compilation = origin_of(given.module)
        parts = list(_parts(given.module, compilation))
        states = [given.states[s.name] for s in given.module.manifest.states
                  if s.name in given.states]
        programs = [self._program(*part, states) for part in parts for part in self._levels(*part)]
        text = self._portable(given, compilation) if self._options.portable else None
        is_per_shape = given.module.launcher is None
        return ExportedEntry(programs, text, given.module.manifest if is_per_shape else None)

    def _levels(self, compilation: Origin, code: ModelCode, module: Executable
                ) -> Iterator[tuple[str, ModelCode, CompileOptions, FallbackLog]]:
        """The code of a program for each level; without levels the code that it has."""
        code.check_portable()
        options, log = compilation.options, module.fallbacks
        program = code.manifest.vm
        table = module.launcher.kernels if isinstance(module.launcher, VirtualMachine) \
            and program is not None and program.has_dynamic_kernels else None
        if not self._is_shared:
            self.native = SharedBlock(code.constants, code.manifest.constants)
            if table is not None:
                code = _with_dynamic_kernels(code, options, table, log)
            yield _label(code.manifest.target.cpu), code, options, log
            return
        for level in self._options.levels or ("",):
            chosen = replace(options, target=_at_level(options.target, level)) if level else options
            made = compilation.compiler.code_in(chosen, lambda _: self.native)
            if table is not None:
                made = _with_dynamic_kernels(made, chosen, table, log)
            own = replace(made.manifest, threads=code.manifest.threads)
            label = own.target.cpu if not level or " " in level else level
            yield _label(label), replace(made, manifest=own), chosen, log

    def _program(self, label: str, code: ModelCode, options: CompileOptions, log: FallbackLog,
                 states: Sequence[np.ndarray]) -> NativeProgram:
        target = options.target_of(code.manifest)
        with recording(log), recording() as found:
            linked = backend_of(target).link(code.objects, target)
        listed = tuple(dict.fromkeys((*code.manifest.fallbacks, *found.found)))
        initial = tuple(map(self.native.add, states))
        manifest = replace(code.manifest, fallbacks=listed, initial=initial,
                           constants_bytes=self.native.nbytes)
        return NativeProgram(label, manifest, linked)

    def _portable(self, given: ModuleWithState, compilation: Origin) -> PortableText | None:
        """The typed program of a module.

        ``None`` for one that needs passes, rules or code generators of this process, and for one
        that was unpickled without its model.
        """
        options, source = compilation.options, compilation.compiler.source
        if source is None or options.extensions or options.codegens:
            return None
        with options.settings(), source.held():
            module = import_with_names(partial(source.import_module, options))
            text = save_json(at_precision(module, options.precision), self._keep, spans=False)
        initial = {name: {"dtype": spec.dtype, "shape": list(spec.concrete_shape),
                          **self._place(given.states[name])}
                   for spec in given.module.manifest.states
                   if (name := spec.name) in given.states}
        return PortableText(text, _plain(options, given.module.threads), initial)

    def _keep(self, data: np.ndarray) -> dict[str, Any] | None:
        return None if data.nbytes <= _INLINE_BYTES else self._place(data)

    def _place(self, data: np.ndarray) -> dict[str, Any]:
        """Where a weight is: with those of native code, or with others."""
        at = self.native.find(data)
        if at is not None:
            return {"member": CONSTANTS, "at": at, "nbytes": data.nbytes}
        return {"member": PORTABLE_CONSTANTS, "at": self.portable.add(data), "nbytes": data.nbytes}


def _parts(module: Executable, compilation: Origin
           ) -> Iterator[tuple[Origin, ModelCode, Executable]]:
    """The programs of a module: one, or those for the input shapes that it was called with."""
    if module.launcher is not None:
        yield compilation, compilation.code, module
        return
    kept = [module.specialize(dict(zip([spec.name for spec in module.inputs], shapes,
                                       strict=True))) for shapes in module.sizes]
    if not kept:
        raise ArtifactError(
            "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
            got=module.manifest.signature(),
            notes=[] if module.reason is None else [
                f"not compiled for all sizes: {module.reason}"],
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)}), or '
                 'call the model with the shapes that the artifact shall have')
    for one in kept:
        found = origin_of(one)
        yield found, found.code, one


def _with_dynamic_kernels(code: ModelCode, options: CompileOptions, table: KernelTable,
                          log: FallbackLog) -> ModelCode:
    """``code`` with its dynamic kernels for all sizes, and for the sizes that calls have met.

    Kernels without a symbolic form are reported; ``ArtifactError`` if calls have met no sizes.
    """
    made, missing = with_symbolic_kernels(code, options)
    if missing and not table.met:
        raise ArtifactError(
            "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
            got=code.manifest.signature(),
            notes=[f"no code for all sizes: {kernel_names(missing)}"],
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)}), '
                 'or call the model with the shapes that the artifact shall have')
    if missing:
        report(kernels_exported_as_met(missing), log)
    return with_met_kernels(made, options, table)


def _at_level(target: Any, level: str) -> CpuTarget:
    """The target for another CPU of the same architecture."""
    if not isinstance(target, CpuTarget):
        raise OptionError("levels are for programs of CPUs", got=target)
    if level.split(" ", 1)[0] in (CpuTarget.kind, *CpuTarget.names):
        return CpuTarget.of(level)
    known = named_cpus(target.arch)
    if level not in known:
        raise OptionError(f"unknown CPU {level!r} of {target.arch}", expected=", ".join(known))
    return CpuTarget.parse(f"llvm -mtriple={target.triple} -mcpu={level}")


def _label(cpu: str) -> str:
    """The name of a CPU or target as that of a folder."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", cpu).strip("_.") or "code"


def _plain(options: CompileOptions, threads: int | None) -> dict[str, Any]:
    """The options that compile a portable form again (``weft.compiler.rebuild``)."""
    target = "cpu" if options.target.kind == CpuTarget.kind else str(options.target)
    placement = options.placement if isinstance(options.placement, str) else None
    devices = [asdict(one) if isinstance(one, SimDevice) else str(one) for one in options.devices]
    specialize = [{name: [sizes.low, sizes.high] for name, sizes in variant}
                  for variant in options.specialize]
    return {"target": target, "opt_level": options.opt_level, "state": dict(options.state),
            "specialize": specialize, "winograd": options.winograd, "threads": threads,
            "symbolic_sizes": options.symbolic_sizes, "devices": devices, "placement": placement,
            "soft_placement": options.soft_placement}


def _buffers(block: SharedBlock) -> list[memoryview]:
    return [chunk.data for chunk in block.chunks]


def export_file(whole: Executable, path: str | os.PathLike[str], format: str,
                states: Mapping[str, np.ndarray], options: ExportOptions) -> None:
    """See ``Executable.export``; the states start with ``states``."""
    if format not in FORMATS:
        raise OptionError("unknown format of an artifact", got=repr(format),
                          expected=" or ".join(map(repr, FORMATS)))
    if format == "weft":
        export_modules(Path(path), {"main": ModuleWithState(whole, states)}, options)
        return
    if options.sign is not None:
        raise OptionError("files of weft.load are signed", got=f"format={format!r}",
                          expected='format="weft"')
    if options.levels:
        raise OptionError("levels are for artifacts of weft.load", got=", ".join(options.levels),
                          help='compile for an older CPU: target="llvm -mcpu=x86-64-v2"')
    compilation = origin_of(whole)
    code = _with_states(compilation.code, states)
    export_as_c(code, compilation.options, path, as_library=format == "lib")


def _with_states(code: ModelCode, states: Mapping[str, np.ndarray]) -> ModelCode:
    """The code with first values of its states behind the constants."""
    if not states:
        return code
    block = SharedBlock(code.constants)
    initial = tuple(block.add(states[s.name]) for s in code.manifest.states)
    manifest = replace(code.manifest, constants_bytes=block.nbytes, initial=initial)
    return replace(code, manifest=manifest, constants=np.concatenate(block.chunks))
