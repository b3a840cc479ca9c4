"""``Compilation``: where an executable came from, and how to compile its model again.

This module imports the runtime alone. What shows, exports or compiles a model imports the compiler
when it is called, so that a model from the cache starts without it (``weft.compiler.warm_start``).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np

from weft.compiler.fallbacks import program_for_shapes, program_of_weights
from weft.runtime.executable import Executable
from weft.runtime.programs_by_size import KeptPrograms, Shapes
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, InternalError, OptionError
from weft.support.fallback import Fallback, report

if TYPE_CHECKING:
    from weft.compiler.options import CompileOptions
    from weft.compiler.program.code import ModelCode
    from weft.compiler.program.constants import ConstantMemory, Memory
    from weft.compiler.stages import Stages
    from weft.frontend.source import Source
    from weft.runtime.improvement import Improvement

# The names of the tensors that are computed (``None``: the outputs), and of those that are given.
_Names: TypeAlias = "tuple[tuple[str, ...] | None, tuple[str, ...]]"


class Compiler(Protocol):
    """What compiles a model again (``weft.compiler.compile_model.ModelCompiler``)."""

    @property
    def source(self) -> Source | None:
        """The model; ``None`` if only its code is known."""

    @property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        ...

    def code(self) -> ModelCode:
        """The code of the model, from the cache or compiled again."""
        ...

    def at(self, fixed: CompileOptions) -> Executable:
        """The program for options that fix the shapes of the inputs."""
        ...

    def part(self, source: Source, options: CompileOptions, code: ModelCode | None) -> Executable:
        """The program of a part of the model, compiled if there is no ``code``."""
        ...

    def code_in(self, options: CompileOptions, memory: Memory) -> ModelCode:
        """The code for these options, whose constants go to ``memory``."""
        ...

    def reweighted(self, values: Mapping[str, np.ndarray]) -> Executable:
        """The model with other values of weights, by name."""
        ...


class Compilation:
    """The ``Recompiler`` of a model that this process compiled.

    ``code`` is ``None`` for a model without a program for all sizes, and for one whose code an
    ``improvement`` is still to make; ``counts``: whether sizes that
    data determines are symbols of the program, if they are to be.
    """

    def __init__(self, compiler: Compiler | None, code: ModelCode | None, *, counts: bool,
                 improvement: Improvement | None = None) -> None:
        self._compiler = compiler
        self._improvement = improvement
        self._code = code
        self._counts = counts
        self._parts: KeptPrograms[_Names, Executable] = KeptPrograms()

    @property
    def compiler(self) -> Compiler:
        """What compiles the model again."""
        if self._compiler is None:
            raise InternalError("a compilation without a compiler")
        return self._compiler

    @cached_property
    def stages(self) -> Stages:
        """The stages of the compilation, which can be shown."""
        from weft.compiler.stages import Stages

        return Stages(self.compiler.source, self.options)

    @property
    def code(self) -> ModelCode:
        """Objects, constants and manifest; ``ArtifactError`` for a model without a program.

        Waits for the optimised code of a model of the tier "fast".
        """
        if self._code is None and self._improvement is not None:
            self._improvement.wait()
            self._code = self._improvement.code or self.compiler.code()
        if self._code is None:
            raise ArtifactError("a model with dynamic shapes cannot be pickled",
                                help="give all sizes, or compile the model in each process")
        return self._code

    @cached_property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        options = self.compiler.options
        return options if self._counts else dataclasses.replace(options, data_sizes=False)

    def specialize(self, whole: Executable, shapes: Shapes) -> Executable:
        """See ``Recompiler.specialize``."""
        by_name = {spec.name: s for spec, s in zip(whole.inputs, shapes, strict=True)}
        return self.compiler.at(self.options.at(by_name))

    def for_sizes(self, whole: Executable, sizes: Sequence[Mapping[str, int]]
                  ) -> Improvement | None:
        """See ``Recompiler.for_sizes``; the weights are those of ``whole``."""
        from weft.compiler.open_model import load_launcher
        from weft.compiler.program.constants import BesideBlock
        from weft.ir.symbol import SizeRange
        from weft.runtime.improvement import Improvement

        launcher = whole.launcher
        if launcher is None or self.compiler.source is None or whole.manifest.vm is not None \
                or not launcher.starts_from_objects:
            return None
        compiler, manifest, constants = self.compiler, whole.manifest, launcher.constants
        frequent = tuple(tuple((name, SizeRange(size, size)) for name, size in one.items())
                         for one in sizes)
        options = dataclasses.replace(self.options, tier="full", frequent=frequent)

        def make() -> ModelCode:
            with config(progress=False):
                made = compiler.code_in(options, lambda _: BesideBlock(manifest, constants))
            threads = dataclasses.replace(made.manifest, threads=manifest.threads)
            return dataclasses.replace(made, manifest=threads)

        return Improvement(make, partial(load_launcher, options=options), manifest.signature())

    def beyond(self, whole: Executable, shapes: Shapes) -> Fallback | None:
        """See ``Recompiler.beyond``.

        The symbols of models of ONNX and torch have ranges that the compiler assumed, besides those
        of the option ``inputs``; other programs declare all ranges themselves.
        """
        from weft.ir.shape import SymDim, as_dim
        from weft.ir.symbol import is_symbol, range_of

        source = self.compiler.source
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
        from weft.compiler.program.build import build_part
        from weft.compiler.program.constants import BesideBlock, OwnBlock
        from weft.frontend.source import ProgramSource

        source, options = self.compiler.source, self.options
        if source is None:
            raise OptionError("an unpickled model has no inner tensors",
                              help="run parts in the process that compiled the model")
        launcher = whole.launcher
        # The virtual machine keeps its constants in another form.
        if launcher is None or whole.is_dynamic or whole.manifest.vm is not None \
                or not launcher.runs_here:
            memory: ConstantMemory = OwnBlock()
        else:
            memory = BesideBlock(whole.manifest, launcher.constants)
        with options.settings():
            part = source.import_part(options, outputs, dict.fromkeys(inputs))
            options = dataclasses.replace(options, inputs=(), outputs=None, specialize=())
            if options.placement_names:
                options = dataclasses.replace(options, placement=None)  # ``part`` is annotated
            return self.compiler.part(ProgramSource(part), options,
                                      build_part(part, options, memory))

    def weights(self) -> dict[str, np.ndarray]:
        """The weights of the model by name, in the form in which it has them."""
        from weft.frontend.weights import import_with_names, weights_of

        source = self.compiler.source
        if source is None:
            raise OptionError("an unpickled model does not know its weights by name",
                              help="set them in the process that compiled the model")
        source.check_unchanged()
        with self.options.settings(), source.held():
            return weights_of(import_with_names(partial(source.import_module, self.options)))

    def reweighted(self, whole: Executable, values: Mapping[str, np.ndarray]) -> Executable:
        """The model with other values of weights; says so if it is another program."""
        made = self.compiler.reweighted(values)
        other = made.recompiler
        if whole.launcher is not None and isinstance(other, Compilation) \
                and (made.launcher is None or self.code.objects != other.code.objects):
            report(program_of_weights(sorted(values)), whole.fallbacks)
        return made

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

    def export(self, whole: Executable, path: str | os.PathLike[str], format: str,
               **options: Any) -> None:
        """See ``Executable.export``."""
        from weft.compiler.export_model import ExportOptions, export_file

        export_file(whole, path, format, {}, ExportOptions.make(**options))

    def pickled(self) -> tuple[Any, ...]:
        """Code and weights, without the model: the copy cannot show its stages."""
        from weft.compiler.extensions import Extensions

        code = self.code
        code.check_portable()
        program = code.manifest.vm
        if program is not None and program.has_dynamic_kernels and self.options.extensions:
            raise ArtifactError("a model with dynamic shapes and users' passes cannot be pickled",
                                got=str(self.options.extensions))
        options = dataclasses.replace(self.options, extensions=Extensions(), records_file=None)
        return unpickled, (b"".join(map(bytes, code.to_parts())), options)


@dataclass(frozen=True, slots=True)
class _NoModel:
    """The compiler of an unpickled model, which can compile nothing."""

    options: CompileOptions
    source: Source | None = None

    def code(self) -> NoReturn:
        raise InternalError("an unpickled model has its code")

    def at(self, fixed: CompileOptions) -> NoReturn:  # noqa: ARG002
        raise ArtifactError("an unpickled model cannot be compiled for other shapes",
                            help="use specialize() in the process that compiled it")

    def part(self, source: Source, options: CompileOptions, code: ModelCode | None  # noqa: ARG002
             ) -> NoReturn:
        raise InternalError("an unpickled model has no parts")

    def code_in(self, options: CompileOptions, memory: Memory) -> NoReturn:  # noqa: ARG002
        raise ArtifactError("an unpickled model cannot be compiled again",
                            help="export it in the process that compiled it, or without levels and "
                                 "other entry points")

    def reweighted(self, values: Mapping[str, np.ndarray]) -> NoReturn:  # noqa: ARG002
        raise InternalError("an unpickled model has no weights by name")


def unpickled(payload: bytes, options: CompileOptions) -> Executable:
    """The executable of a pickle, which holds code and weights, but not the model."""
    from weft.compiler.open_model import open_program
    from weft.compiler.program.code import ModelCode

    code = ModelCode.from_payload(memoryview(payload))
    return open_program(code, options, Compilation(_NoModel(options), code, counts=True))


def export_with_state(model: Executable, states: Mapping[str, np.ndarray],
                      path: str | os.PathLike[str], format: str = "weft", **options: Any) -> None:
    """Write ``model`` as an artifact that starts with these values of its states.

    They follow the constants (``Manifest.initial``). ``format`` and ``options`` are those of
    ``model.export``. Raises what ``model.export`` raises.
    """
    from weft.compiler.export_model import ExportOptions, export_file

    export_file(model, path, format, states, ExportOptions.make(**options))
