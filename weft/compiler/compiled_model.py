"""``CompiledModel``: the executable that ``weft.compile`` makes of a model with fixed shapes.

This module imports the runtime alone. What shows or exports a model imports the compiler when it is
called, so that a model from the cache starts without it (``weft.compiler.warm_start``).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.compiler.partial_programs import PartialPrograms
from weft.runtime import CompiledModule, Manifest
from weft.runtime.arena import AlignedBlock
from weft.runtime.library import Library
from weft.runtime.named_call import NamedCall
from weft.runtime.run_control import RunControl
from weft.support.deprecation import renamed_arguments, renamed_method
from weft.support.errors import ArtifactError, OptionError, TargetError
from weft.support.fallback import FallbackLog, recording

if TYPE_CHECKING:
    from weft.compiler.options import CompileOptions
    from weft.compiler.program.model_code import ModelCode
    from weft.compiler.stages import Stages


class Compilation(Protocol):
    """Where an executable came from: its code, and the stages of its compilation."""

    @property
    def code(self) -> ModelCode:
        """Objects, constants and manifest."""
        ...

    @property
    def stages(self) -> Stages:
        """The stages that can be shown."""
        ...


class Compiled:
    """What all executables share: export, and text and graphs of every stage."""

    _compilation: Compilation
    _fallbacks: FallbackLog

    @property
    def _code(self) -> ModelCode:
        return self._compilation.code

    @property
    def _stages(self) -> Stages:
        return self._compilation.stages

    @property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        return self._stages.options

    def as_text(self, stage: str = "optimized") -> str:
        """A stage as text: import, canonical, optimized, lowered, vm, te, scheduled, tir, llvm
        or asm; or placement, where each call runs, and when by estimates.

        The compilation runs again up to that stage. Raises ``OptionError`` for an unknown stage.
        """
        if stage == "placement":
            from weft.compiler.report.placement import placement_table

            return placement_table(self._code.manifest)
        return self._stages.as_text(stage)

    @renamed_arguments(phase="stage")
    def as_dot(self, stage: str = "optimized") -> str:
        """The graph at the end of import, canonical, optimized or lowered, for Graphviz.

        Raises ``OptionError`` for another stage.
        """
        from weft.ir.drawing import as_dot

        return as_dot(self._stages.module_at(stage))

    @renamed_arguments(phase="stage")
    def as_svg(self, stage: str = "lowered") -> str | None:
        """The graph of ``main`` as SVG; ``None`` if it is too large to draw."""
        from weft.compiler.report.graph_svg import MAX_NODES, graph_svg
        from weft.ir.drawing import drawn_nodes

        nodes = drawn_nodes(self._stages.module_at(stage)["main"])
        return graph_svg(nodes) if len(nodes) <= MAX_NODES else None

    drawing = renamed_method("drawing", "as_svg")

    @renamed_arguments(kind="format")
    def export(self, path: str | os.PathLike[str], *, format: str = "weft") -> None:
        """Write the model as an artifact that runs without a compiler.

        ``format="weft"`` writes one file for ``weft.load``. ``format="c"`` makes the folder
        ``path`` with an object, a header and a ``main.c``, for programs without Python; the name
        of the folder is the prefix of the functions. Symbolic sizes are parameters of the
        functions, and state is an array that the caller keeps. Raises ``LinkerError`` if no
        linker is found, ``OptionError`` for another format, and ``ArtifactError`` for a model with
        dynamic shapes.
        """
        from weft.codegen import backend_of
        from weft.export import export_artifact, export_c

        if format not in ("weft", "c"):
            raise OptionError("unknown format of an artifact", got=repr(format),
                              expected="'weft' or 'c'")
        self._code.check_portable()
        program = self._code.manifest.vm
        if program is not None and program.has_dynamic_kernels:
            raise ArtifactError(
                "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
                got=self._code.manifest.signature(),
                help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)})',
            )
        code, target = self._code, self.options.target_of(self._code.manifest)
        backend = backend_of(target)
        if format == "c":
            if code.manifest.launched_by == "lanes":
                raise TargetError("a C program runs on one device", got=", ".join(
                    map(str, self.options.devices)),
                    help='export format="weft", or compile without devices')
            # The last objects are the runtime support of weft.load, not of C programs.
            own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
            export_c(path, code.manifest, own, code.constants, target)
        else:
            with recording(self._fallbacks), recording() as log:
                linked = backend.link(code.objects, target)
            listed = tuple(dict.fromkeys((*code.manifest.fallbacks, *log.found)))
            manifest = dataclasses.replace(code.manifest, fallbacks=listed)
            export_artifact(path, manifest, linked, code.constants)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle code and weights, without the model: the copy cannot show its stages.

        Raises ``ArtifactError`` for a model with dynamic shapes.
        """
        from weft.compiler.extensions import Extensions
        from weft.compiler.open_model import unpickled

        self._code.check_portable()
        program = self._code.manifest.vm
        if program is not None and program.has_dynamic_kernels and self.options.extensions:
            raise ArtifactError("a model with dynamic shapes and users' passes cannot be pickled",
                                got=str(self.options.extensions))
        options = dataclasses.replace(self.options, extensions=Extensions(), records_file=None)
        return unpickled, (b"".join(map(bytes, self._code.to_parts())), options)


class CompiledModel(Compiled, CompiledModule):
    """A model compiled for this machine. See ``Executable``.

    ``run`` also takes the names of inner tensors, to be fetched or fed: the program for each set of
    names is compiled at the first call with it, and reads the weights of this one where both have
    the same.
    """

    def __init__(self, manifest: Manifest, library: Library,
                 constants: np.ndarray | AlignedBlock, compilation: Compilation) -> None:
        self._compilation = compilation
        super().__init__(manifest, library, constants)

    @functools.cached_property
    def _parts(self) -> PartialPrograms:
        # The virtual machine keeps its constants in another form.
        shared = None if self.manifest.vm is not None else self._constants
        return PartialPrograms(self.manifest, shared)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """See ``CompiledModule.run``; names may be those of any tensor of the model."""
        if self._parts.is_whole(output_names, feeds):
            return super().run(output_names, feeds, control)
        return self._parts.run(self._stages, output_names, feeds, control)

    def callable(self, outputs: Sequence[str] | None = None,
                 inputs: Sequence[str] | None = None) -> NamedCall:
        """A function of the tensors ``inputs``, by position, that gives the list of ``outputs``.

        Names are those of ``run``; ``None`` are those of the model. What they need is compiled now,
        so that calls do nothing but run it (TensorFlow's ``make_callable``).
        """
        return self._parts.callable_of(self, self._stages, outputs, inputs)
