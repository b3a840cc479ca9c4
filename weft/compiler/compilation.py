"""``Compilation``: where an executable came from, and how to compile its model again.

This module imports the runtime alone. What shows, exports or compiles a model imports the compiler
when it is called, so that a model from the cache starts without it (``weft.compiler.warm_start``).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.compiler.fallbacks import program_for_shapes
from weft.runtime.executable import Executable
from weft.runtime.programs_by_size import KeptPrograms, Shapes
from weft.support.errors import ArtifactError, InternalError, OptionError
from weft.support.fallback import Fallback

if TYPE_CHECKING:
    from weft.compiler.options import CompileOptions
    from weft.compiler.program.model_code import ModelCode
    from weft.compiler.stages import Stages

CompileAt: TypeAlias = "Callable[[CompileOptions], Executable]"
# The names of the tensors that are computed (``None``: the outputs), and of those that are given.
_Names: TypeAlias = "tuple[tuple[str, ...] | None, tuple[str, ...]]"


class Compilation:
    """The ``Recompiler`` of a model that this process compiled.

    ``code`` is ``None`` for a model without a program for all sizes. ``compile_at`` compiles it for
    options that fix its shapes; ``None`` for an unpickled model.
    """

    def __init__(self, stages: Stages | None = None, code: ModelCode | None = None,
                 compile_at: CompileAt | None = None) -> None:
        self._stages = stages
        self._code = code
        self._compile_at = compile_at
        self._parts: KeptPrograms[_Names, Executable] = KeptPrograms()

    @property
    def stages(self) -> Stages:
        """The stages of the compilation, which can be shown."""
        if self._stages is None:
            raise InternalError("a compilation without stages")
        return self._stages

    @property
    def code(self) -> ModelCode:
        """Objects, constants and manifest; ``ArtifactError`` for a model without a program."""
        if self._code is None:
            raise ArtifactError("a model with dynamic shapes cannot be pickled",
                                help="give all sizes, or compile the model in each process")
        return self._code

    def compile_at(self, options: CompileOptions) -> Executable:
        """The program for options that fix the shapes of the inputs."""
        if self._compile_at is None:
            raise ArtifactError("an unpickled model cannot be compiled for other shapes",
                                help="use specialize() in the process that compiled it")
        return self._compile_at(options)

    @property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        return self.stages.options

    def specialize(self, whole: Executable, shapes: Shapes) -> Executable:
        """See ``Recompiler.specialize``."""
        by_name = {spec.name: s for spec, s in zip(whole.inputs, shapes, strict=True)}
        return self.compile_at(self.options.at(by_name))

    def beyond(self, whole: Executable, shapes: Shapes) -> Fallback | None:
        """See ``Recompiler.beyond``.

        The symbols of models of ONNX and torch have ranges that the compiler assumed, besides those
        of the option ``inputs``; other programs declare all ranges themselves.
        """
        from weft.ir.shape import SymDim, as_dim
        from weft.ir.symbol import is_symbol, range_of

        source = self.stages.source
        if source is None or not source.assumes_ranges:
            return None
        declared = self.options.input_shapes or {}
        for shape, spec in zip(shapes, whole.inputs, strict=True):
            for size, dim in zip(shape, declared.get(spec.name) or (), strict=False):
                if isinstance(bound := as_dim(dim), SymDim) and is_symbol(str(bound)) \
                        and size not in range_of(str(bound)):
                    return None
        return program_for_shapes(whole.manifest)

    def part(self, whole: Executable, outputs: Sequence[str] | None, inputs: Iterable[str]
             ) -> Executable:
        """See ``Recompiler.part``; compiled at the first use of these names.

        Raises ``InvalidInputError`` for unknown names, for a name that is given and computed, and
        for a tensor that is given twice.
        """
        names = None if outputs is None else tuple(outputs), tuple(sorted(inputs))
        return self._parts.get(names, lambda: self._compiled_part(whole, *names))

    def _compiled_part(self, whole: Executable, outputs: tuple[str, ...] | None,
                       inputs: tuple[str, ...]) -> Executable:
        from weft.compiler.compile_model import part_of
        from weft.compiler.program.constants import BesideBlock
        from weft.compiler.program.own_block import OwnBlock

        launcher = whole.launcher
        # The virtual machine keeps its constants in another form.
        if launcher is None or whole.is_dynamic or whole.manifest.vm is not None \
                or not launcher.runs_here:
            return part_of(self.stages, outputs, inputs, OwnBlock())
        return part_of(self.stages, outputs, inputs, BesideBlock(whole.manifest,
                                                                 launcher.constants))

    def as_text(self, stage: str) -> str:
        """See ``Executable.as_text``."""
        if stage == "placement":
            from weft.compiler.report.placement import placement_table

            return placement_table(self.code.manifest)
        return self.stages.as_text(stage)

    def as_dot(self, stage: str) -> str:
        """See ``Executable.as_dot``."""
        from weft.ir.drawing import as_dot

        return as_dot(self.stages.module_at(stage))

    def as_svg(self, stage: str) -> str | None:
        """See ``Executable.as_svg``."""
        from weft.compiler.report.graph_svg import MAX_NODES, graph_svg
        from weft.ir.drawing import drawn_nodes

        nodes = drawn_nodes(self.stages.module_at(stage)["main"])
        return graph_svg(nodes) if len(nodes) <= MAX_NODES else None

    def export(self, whole: Executable, path: str | os.PathLike[str], format: str) -> None:
        """See ``Executable.export``."""
        from weft.compiler.export_model import export_code

        if whole.launcher is None:
            raise ArtifactError(
                "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
                where=path, got=whole.manifest.signature(),
                notes=[] if whole.reason is None else [
                    f"not compiled for all sizes: {whole.reason}"],
                help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)}), '
                     'or export model.specialize({"x": (1, 3, 224, 224)})')
        export_code(self.code, self.options, path, format, whole.fallbacks)

    def pickled(self) -> tuple[Any, ...]:
        """Code and weights, without the model: the copy cannot show its stages."""
        from weft.compiler.extensions import Extensions
        from weft.compiler.open_model import unpickled

        code = self.code
        code.check_portable()
        program = code.manifest.vm
        if program is not None and program.has_dynamic_kernels and self.options.extensions:
            raise ArtifactError("a model with dynamic shapes and users' passes cannot be pickled",
                                got=str(self.options.extensions))
        options = dataclasses.replace(self.options, extensions=Extensions(), records_file=None)
        return unpickled, (b"".join(map(bytes, code.to_parts())), options)


def compilation_of(executable: Executable) -> Compilation:
    """Where a compiled model came from; ``OptionError`` for a loaded artifact."""
    found = executable.recompiler
    if not isinstance(found, Compilation):
        raise OptionError("a loaded artifact has no compilation", got=executable,
                          help="use the executable that weft.compile returns")
    return found
