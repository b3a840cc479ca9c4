"""The executables that ``weft.compile`` makes of models with fixed shapes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.external_kernel import errors_raised
from weft.compiler.extensions import Extensions
from weft.compiler.options import CompileOptions
from weft.compiler.program.model_code import ModelCode
from weft.compiler.report.graph_svg import MAX_NODES, graph_svg
from weft.compiler.stages import Stages
from weft.compiler.vm.specialize import Specializer
from weft.export import export_artifact, export_c
from weft.ir.drawing import as_dot, drawn_nodes
from weft.runtime import CompiledModule, Manifest, TensorSpec
from weft.runtime.artifact import check_machine, module_class
from weft.runtime.library import Library
from weft.runtime.profile import Profile
from weft.runtime.sized_module import SizedModule
from weft.runtime.step_module import StepModule
from weft.runtime.vm.module import VmModule
from weft.support.errors import ArtifactError, OptionError, TargetError


class Compiled:
    """What all executables share: export, and text and graphs of every stage."""

    _code: ModelCode
    _stages: Stages

    @property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        return self._stages.options

    def as_text(self, stage: str = "optimized") -> str:
        """A stage as text: import, canonical, optimized, lowered, vm, te, scheduled, tir, llvm
        or asm.

        The compilation runs again up to that stage. Raises ``OptionError`` for an unknown stage.
        """
        return self._stages.as_text(stage)

    def as_dot(self, phase: str = "optimized") -> str:
        """The graph at the end of import, canonical, optimized or lowered, for Graphviz.

        Raises ``OptionError`` for another phase.
        """
        return as_dot(self._stages.module_at(phase))

    def drawing(self, phase: str = "lowered") -> str | None:
        """The graph of ``main`` as SVG; ``None`` if it is too large to draw."""
        nodes = drawn_nodes(self._stages.module_at(phase)["main"])
        return graph_svg(nodes) if len(nodes) <= MAX_NODES else None

    def export(self, path: str | os.PathLike[str], *, kind: str = "weft") -> None:
        """Write the model as an artifact that runs without a compiler.

        ``kind="weft"`` writes one file for ``weft.load``. ``kind="c"`` makes the folder ``path``
        with an object, a header and a ``main.c``, for programs without Python; the name of the
        folder is the prefix of the functions. Symbolic sizes are parameters of the functions, and
        state is an array that the caller keeps. Raises ``LinkerError`` if no linker is found,
        ``OptionError`` for another kind, and ``ArtifactError`` for a model with dynamic shapes.
        """
        if kind not in ("weft", "c"):
            raise OptionError("unknown kind of artifact", got=repr(kind), expected="'weft' or 'c'")
        self._code.check_portable()
        program = self._code.manifest.vm
        if program is not None and program.has_dynamic_kernels:
            raise ArtifactError(
                "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
                got=self._code.manifest.signature(),
                help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)})',
            )
        code, target = self._code, self.options.target
        backend = backend_of(target)
        if kind == "c":
            # The last objects are the runtime support of weft.load, not of C programs.
            own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
            export_c(path, code.manifest, own, code.constants, target)
        else:
            linked = backend.link(code.objects, target)
            export_artifact(path, code.manifest, linked, code.constants)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle code and weights, without the model: the copy cannot show its stages.

        Raises ``ArtifactError`` for a model with dynamic shapes.
        """
        if getattr(self, "_code", None) is None:
            raise ArtifactError("a model with dynamic shapes cannot be pickled",
                                help="give all sizes, or compile the model in each process")
        self._code.check_portable()
        program = self._code.manifest.vm
        if program is not None and program.has_dynamic_kernels and self.options.extensions:
            raise ArtifactError("a model with dynamic shapes and users' passes cannot be pickled",
                                got=str(self.options.extensions))
        options = dataclasses.replace(self.options, extensions=Extensions(), records_file=None)
        return _unpickled, (b"".join(map(bytes, self._code.to_parts())), options)


class CompiledModel(Compiled, CompiledModule):
    """A model compiled for this machine. See ``Executable``."""

    def __init__(self, code: ModelCode, stages: Stages) -> None:
        self._code = code
        self._stages = stages
        library = _load(code, stages)
        super().__init__(code.manifest, library, code.constants)


class VmModel(CompiledModel, VmModule):
    """A compiled model with control flow or data-dependent shapes."""

    def __init__(self, code: ModelCode, stages: Stages) -> None:
        self._code = code
        self._stages = stages
        VmModule.__init__(self, code.manifest, _load(code, stages), code.constants,
                          Specializer(stages.options))


class StepModel(CompiledModel, StepModule):
    """A compiled model whose kernels the runtime launches."""


class _CallsPython(CompiledModule):
    """Raises the exceptions of a model's Python functions after compiled code has returned."""

    _code: ModelCode

    def _execute(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None = None
                 ) -> list[np.ndarray]:
        with errors_raised(self._code.callbacks):
            return super()._execute(values, outputs)

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        run = super()._bound(arrays, outputs)

        def run_and_raise() -> None:
            with errors_raised(self._code.callbacks):
                run()

        return run_and_raise

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel, as ``CompiledModule.profile``; an exception ends the measurement."""
        with errors_raised(self._code.callbacks):
            return super().profile(*args, repeat=repeat, **kwargs)


class PythonCallingModel(_CallsPython, CompiledModel):
    """A compiled model that calls Python functions."""


class PythonCallingVmModel(_CallsPython, VmModel):
    """A compiled model with control flow or data-dependent shapes that calls Python functions."""


class PythonCallingStepModel(_CallsPython, StepModel):
    """A ``StepModel`` that calls Python functions."""


# By the class that runs the program: the model, and the model that calls Python functions.
_MODELS: dict[type[CompiledModule | SizedModule],
              tuple[type[CompiledModel], type[CompiledModel]]] = {
    CompiledModule: (CompiledModel, PythonCallingModel),
    StepModule: (StepModel, PythonCallingStepModel),
    VmModule: (VmModel, PythonCallingVmModel),
}


class ForeignModel(Compiled):
    """A model compiled for a CPU whose code this machine cannot run: export it, print it.

    Calling it raises ``TargetError``; running the code would kill the process.
    """

    def __init__(self, code: ModelCode, stages: Stages, reason: ArtifactError) -> None:
        self._code = code
        self._stages = stages
        self._reason = reason
        self.manifest: Manifest = code.manifest

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output."""
        return self.manifest.outputs

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TargetError("the model was compiled for another machine",
                          expected=self._reason.expected, got=self._reason.got,
                          notes=[self._reason.what], help="export it and run the artifact there")

    run = __call__
    bind = __call__
    profile = __call__


def _unpickled(payload: bytes, options: CompileOptions) -> CompiledModel | ForeignModel:
    return open_code(ModelCode.from_payload(memoryview(payload)), Stages(None, options))


def open_code(code: ModelCode, stages: Stages) -> CompiledModel | ForeignModel:
    """The executable of a model's code: a ``ForeignModel`` if this machine cannot run it."""
    try:
        check_machine(code.manifest.target)
    except ArtifactError as reason:
        return ForeignModel(code, stages, reason)
    plain, python_calling = _MODELS[module_class(code.manifest)]
    kind = python_calling if code.callbacks else plain
    return kind(code, stages)


def _load(code: ModelCode, stages: Stages) -> Library:
    target = stages.options.target
    return backend_of(target).load(code.objects, target)
