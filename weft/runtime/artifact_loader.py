"""Modules of the entry points of an artifact: native code that fits, or the portable form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from weft.runtime.artifact_contents import Contents, EntryPoint, PortableForm
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.executable import Executable, open_executable
from weft.runtime.launchers import Code, check_machine, launcher_of
from weft.runtime.library import LOADERS
from weft.runtime.manifest import Manifest, TargetSpec
from weft.runtime.programs_by_size import Shapes
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, WeftError
from weft.support.fallback import Fallback, report
from weft.support.plugins import load_plugins


@dataclass(frozen=True, slots=True)
class PortableProgram:
    """The portable form of an entry point, as it was read.

    ``text`` is the typed program as JSON, ``member`` gives the bytes of a member that it refers to,
    ``initial`` the first values of its state.
    """

    text: str
    member: Callable[[str], memoryview]
    options: Mapping[str, Any]
    initial: Mapping[str, np.ndarray]


class Rebuilder(Protocol):
    """Compiles the portable form of an artifact for this machine.

    Raises ``ArtifactError`` if no compiler is installed.
    """

    def program(self, program: PortableProgram, threads: int | None) -> Executable:
        """The program, compiled for this machine."""
        ...

    def specialize(self, target: TargetSpec) -> Any:
        """The compiler of kernels of the virtual machine for sizes without a compiled kernel."""
        ...


@contextmanager
def errors_named(path: object) -> Iterator[None]:
    """Add the path of the file to the errors of a block."""
    try:
        yield
    except ArtifactError as error:
        where = error.where
        if where is not None and where.startswith(str(path)):
            raise
        raise type(error)(error.what, where=f"{path}: {where}" if where else path,
                          expected=error.expected, got=error.got, notes=error.notes,
                          help=error.help) from None


class Loader:
    """Makes the modules of a file."""

    def __init__(self, file: ArtifactFile, threads: int | None, rebuilder: Rebuilder | None, *,
                 map_constants: bool, sandbox: bool = False) -> None:
        self._file = file
        self._sandbox = sandbox
        self._threads = threads
        self._rebuilder = rebuilder
        self._copy = not map_constants
        self._constants: Any = None

    @staticmethod
    def of(path: Path, threads: int | None = None, rebuilder: Rebuilder | None = None, *,
           map_constants: bool = True, sandbox: bool = False) -> Loader:
        """The loader of a file; ``ArtifactError`` for one that is no artifact."""
        return Loader(ArtifactFile(path), threads, rebuilder, map_constants=map_constants,
                      sandbox=sandbox)

    @property
    def file(self) -> ArtifactFile:
        """The file that modules are made from."""
        return self._file

    @property
    def contents(self) -> Contents:
        """The contents of the file."""
        return self._file.contents

    def entry_point(self, name: str) -> Executable:
        """The module of an entry point."""
        with errors_named(self._file.path):
            return self._entry_point(self.contents.entries[name])

    def fitting(self, name: str) -> Iterator[Executable]:
        """The modules of all native programs of an entry point that fit this machine."""
        for folder in self.contents.entries[name].programs:
            manifest = self._file.manifest(folder)
            try:
                check_machine(manifest.target)
            except ArtifactError:
                continue
            if manifest.target.kind == "cpu":
                yield self.native(folder, manifest)

    def _entry_point(self, entry: EntryPoint) -> Executable:
        file = self._file
        if self._sandbox:
            from weft.runtime.devices.wasm.sandbox import sandboxed

            return sandboxed(file, entry)
        programs = {folder: file.manifest(folder) for folder in entry.programs}
        for manifest in programs.values():
            check_loader(manifest.target)
        if entry.signature:
            signature = file.manifest_at(entry.signature)
            by_shapes = Executable(signature, None, _ProgramsOfFile(self, entry, programs),
                                   start="from the programs of an artifact", reason="the artifact "
                                   "has a program for each set of input shapes")
            by_shapes.rebuild = self._rebuild(entry)
            return by_shapes
        try:
            folder = best_fit(programs)
        except ArtifactError as reason:
            return self._rebuilt(entry, reason)
        made = self.native(folder, programs[folder])
        made.rebuild = self._rebuild(entry)
        return made

    def _rebuild(self, entry: EntryPoint) -> Callable[[], Executable] | None:
        """The compiler of the portable form, if there is one and a compiler may be installed."""
        form = entry.portable
        return None if form is None or self._rebuilder is None else partial(self.compiled, form)

    def native(self, folder: str, manifest: Manifest) -> Executable:
        """A native program that fits this machine."""
        launcher_of(manifest)  # raises for one that is not registered
        code = self._file.code(folder)
        if self._constants is None:
            self._constants = self._file.constants(copy=self._copy)
        if self._threads is not None:
            manifest = replace(manifest, threads=self._threads)
        load_library = LOADERS.get(manifest.target.kind)
        specialize = None
        if manifest.vm is not None and manifest.vm.has_dynamic_kernels and self._rebuilder:
            specialize = self._rebuilder.specialize(manifest.target)
        return open_executable(Code(manifest, lambda: load_library(code), self._constants,
                                    specialize=specialize))

    def _rebuilt(self, entry: EntryPoint, reason: ArtifactError) -> Executable:
        """The portable form, compiled for this machine, which no native program fits."""
        form = entry.portable
        if form is None or self._rebuilder is None:
            raise reason
        try:
            made = self.compiled(form)
        except WeftError as error:
            raise ArtifactError(
                reason.what, expected=reason.expected, got=reason.got, help=reason.help,
                notes=[*reason.notes, f"its portable form cannot be compiled: {error.what}",
                       *([error.help] if error.help else [])]) from None
        if not made.runs_here:
            raise reason
        report(Fallback(
            "an artifact is compiled again for this machine",
            f"{reason.what}: it needs {reason.expected}" if reason.expected else reason.what,
            "the time of a compilation, at the first load on this machine",
            'export it with code for this CPU: mod.export(path, levels=["v2", "v3", "v4"])'),
            made.fallbacks)
        return made

    def compiled(self, form: PortableForm) -> Executable:
        """A portable form as a program for this machine."""
        if self._rebuilder is None:
            raise ArtifactError("the portable form of an artifact needs weft's compiler",
                                help="use weft.load")
        text = bytes(self._file.read(form.program)).decode()
        initial = {name: self._array(place) for name, place in form.initial.items()}
        program = PortableProgram(text, self._file.read, form.options, initial)
        return self._rebuilder.program(program, self._threads)

    def _array(self, place: Mapping[str, Any]) -> np.ndarray:
        dtype, shape = numpy_dtype(place["dtype"]), tuple(place["shape"])
        start, count = int(place["at"]), int(np.prod(shape, dtype=np.int64))
        data = self._file.read(place["member"])[start:start + count * dtype.itemsize]
        return np.frombuffer(data, dtype, count).reshape(shape)


class _ProgramsOfFile:
    """The recompiler of a model without a program for all sizes: the programs of its file.

    Other input shapes are compiled from the portable form.
    """

    def __init__(self, loader: Loader, entry: EntryPoint, programs: Mapping[str, Manifest]
                 ) -> None:
        self._loader = loader
        self._form = entry.portable
        self._folders: dict[Shapes, dict[str, Manifest]] = {}
        for folder, manifest in programs.items():
            shapes = tuple(spec.concrete_shape for spec in manifest.inputs)
            self._folders.setdefault(shapes, {})[folder] = manifest
        self._compiled: Executable | None = None

    def specialize(self, whole: Executable, shapes: Shapes) -> Executable:
        """See ``Recompiler.specialize``."""
        found = self._folders.get(shapes, {})
        try:
            folder = best_fit(found)
        except ArtifactError as reason:
            return self._at(whole, shapes, reason)
        return self._loader.native(folder, found[folder])

    def _at(self, whole: Executable, shapes: Shapes, reason: ArtifactError) -> Executable:
        if self._form is None:
            raise ArtifactError(
                "the artifact has no program for these input shapes" if not self._folders.get(
                    shapes) else reason.what, got=shapes,
                expected=" or ".join(map(str, self._folders)),
                help="call the model with these shapes before it is exported")
        if self._compiled is None:
            self._compiled = self._loader.compiled(self._form)
        made = self._compiled
        return made.specialize({spec.name: shape for spec, shape in zip(
            whole.inputs, shapes, strict=True)})

    @property
    def options(self) -> NoReturn:
        """See ``Recompiler``."""
        raise self._lacks("the options of its compilation")

    def for_sizes(self, whole: Executable, sizes: object) -> None:
        """See ``Recompiler``."""

    def beyond(self, whole: Executable, shapes: Shapes) -> None:
        """See ``Recompiler``."""

    def part(self, whole: Executable, outputs: object, inputs: object) -> NoReturn:  # noqa: ARG002
        """See ``Recompiler``."""
        raise self._lacks("programs of inner tensors")

    def as_text(self, stage: str) -> NoReturn:  # noqa: ARG002
        """See ``Recompiler``."""
        raise self._lacks("the stages of its compilation")

    as_dot = as_svg = as_text

    def export(self, whole: Executable, path: object, format: str, **options: Any) -> NoReturn:  # noqa: ARG002
        """See ``Recompiler``."""
        raise self._lacks("the objects that an export links")

    def pickled(self) -> NoReturn:
        """See ``Recompiler``."""
        raise self._lacks("what a pickle holds")

    def _lacks(self, what: str) -> ArtifactError:
        return ArtifactError(f"an artifact does not contain {what}",
                             help="use the executable that weft.compile returns")


def best_fit(programs: Mapping[str, Manifest]) -> str:
    """Of native programs, the one for this machine that uses most features of its CPU.

    Raises ``ArtifactError`` if none fits, which names what this CPU lacks for the least demanding.
    """
    order = sorted(programs, key=lambda name: len(programs[name].target.features))
    reason = ArtifactError("the artifact has no native code", help="export it with native code")
    for number, folder in enumerate(reversed(order)):
        try:
            check_machine(programs[folder].target)
        except ArtifactError as error:
            reason = error
            continue
        return order[-1 - number]
    raise reason


def check_loader(target: TargetSpec) -> None:
    """Raise ``ArtifactError`` if nothing in this process loads code of the kind of a target."""
    if target.kind not in LOADERS:
        load_plugins()
    if target.kind not in LOADERS:
        raise ArtifactError(f"no loader is registered for targets of kind {target.kind!r}",
                            expected=", ".join(LOADERS), got=target.cpu,
                            help="import the package that defines the target")
