"""The executable of a model's code: the class that runs it, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.external_kernel import errors_raised
from weft.compiler.compiled_model import Compilation, CompiledModel
from weft.compiler.dynamic_model import CompileAt, DynamicModel
from weft.compiler.executable import Executable
from weft.compiler.foreign_model import ForeignModel
from weft.compiler.options import CompileOptions
from weft.compiler.program.forms import PerShape
from weft.compiler.program.model_code import ModelCode
from weft.compiler.stages import Stages
from weft.compiler.vm.specialize import Specializer
from weft.runtime import CompiledModule, Manifest
from weft.runtime.arena import AlignedBlock
from weft.runtime.artifact import check_machine, module_class
from weft.runtime.library import Library, native
from weft.runtime.profile import Profile
from weft.runtime.sized_module import SizedModule
from weft.runtime.step_module import StepModule
from weft.runtime.vm.module import VmModule
from weft.support import trace
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class Made:
    """A compilation of this process."""

    code: ModelCode
    stages: Stages


class VmModel(CompiledModel, VmModule):
    """A compiled model with control flow or data-dependent shapes."""

    def __init__(self, manifest: Manifest, library: Library,
                 constants: np.ndarray | AlignedBlock, compilation: Compilation) -> None:
        self._compilation = compilation
        VmModule.__init__(self, manifest, library, constants,
                          Specializer(compilation.stages.options))


class StepModel(CompiledModel, StepModule):
    """A compiled model whose kernels the runtime launches."""


class CallsPython(CompiledModule):
    """Raises the exceptions of a model's Python functions after compiled code has returned."""

    _compilation: Compilation

    def _execute(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None = None
                 ) -> list[np.ndarray]:
        with errors_raised(self._compilation.code.callbacks):
            return super()._execute(values, outputs)

    def _runs_into(self, values: Sequence[Any], given: Sequence[Any]) -> bool:
        with errors_raised(self._compilation.code.callbacks):
            return super()._runs_into(values, given)

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        run = super()._bound(arrays, outputs)

        def run_and_raise() -> None:
            with errors_raised(self._compilation.code.callbacks):
                run()

        return run_and_raise

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel, as ``CompiledModule.profile``; an exception ends the measurement."""
        with errors_raised(self._compilation.code.callbacks):
            return super().profile(*args, repeat=repeat, **kwargs)


class PythonCallingModel(CallsPython, CompiledModel):
    """A compiled model that calls Python functions."""


class PythonCallingVmModel(CallsPython, VmModel):
    """A compiled model with control flow or data-dependent shapes that calls Python functions."""


class PythonCallingStepModel(CallsPython, StepModel):
    """A ``StepModel`` that calls Python functions."""


@dataclass(frozen=True, slots=True)
class MadePerShape:
    """A compilation that gives code only once the shapes of the inputs are known."""

    stages: Stages

    @property
    def code(self) -> ModelCode:
        """Raises ``ArtifactError``."""
        raise ArtifactError("a model with dynamic shapes cannot be pickled",
                            help="give all sizes, or compile the model in each process")


# By the class that runs the program: the model, and the model that calls Python functions.
_MODELS: dict[type[CompiledModule | SizedModule],
              tuple[type[CompiledModel], type[CompiledModel]]] = {
    CompiledModule: (CompiledModel, PythonCallingModel),
    StepModule: (StepModel, PythonCallingStepModel),
    VmModule: (VmModel, PythonCallingVmModel),
}


def _models_of(manifest: Manifest) -> tuple[type[CompiledModel], type[CompiledModel]]:
    kind = module_class(manifest)
    if kind in _MODELS:
        return _MODELS[kind]
    # Programs for CPUs do without the runtime of other devices.
    from weft.compiler.device_models import DEVICE_MODELS

    return DEVICE_MODELS[kind]


def open_code(code: ModelCode, stages: Stages) -> CompiledModel | ForeignModel:
    """The executable of a model's code: a ``ForeignModel`` if this machine cannot run it."""
    try:
        check_machine(code.manifest.target)
    except ArtifactError as reason:
        return ForeignModel(Made(code, stages), reason)
    plain, python_calling = _models_of(code.manifest)
    kind = python_calling if code.callbacks else plain
    return kind(code.manifest, load_code(code, stages), code.constants, Made(code, stages))


def open_for_all_sizes(code: ModelCode, stages: Stages, compile_at: CompileAt
                       ) -> DynamicModel | ForeignModel:
    """The executable of a program with symbolic sizes."""
    try:
        check_machine(code.manifest.target)
    except ArtifactError as reason:
        return ForeignModel(Made(code, stages), reason)
    general = SizedModule(code.manifest, load_code(code, stages), code.constants)
    return DynamicModel(code.manifest, Made(code, stages), compile_at, general)


def open_executable(code: ModelCode | PerShape, stages: Stages, compile_at: CompileAt
                    ) -> Executable:
    """The executable of a model's code; ``compile_at`` compiles it for sizes that code lacks."""
    if isinstance(code, PerShape):
        return started(DynamicModel(code.manifest, MadePerShape(stages), compile_at,
                                    reason=code.reason), code.start)
    if code.manifest.symbols:
        return started(open_for_all_sizes(code, stages, compile_at), code.start)
    with trace.span("load"):
        return started(open_code(code, stages), code.start)


M = TypeVar("M", bound="CompiledModel | DynamicModel | ForeignModel")


def started(made: M, start: str) -> M:
    """``made``, whose ``explain`` says how it started."""
    made._start = start  # noqa: SLF001 - said once, where the executable is made
    return made


def load_code(code: ModelCode, stages: Stages) -> Library:
    """The objects of a model, ready to run."""
    target = stages.options.target_of(code.manifest)
    backend = backend_of(target)
    if code.manifest.launched_by != "lanes":
        return backend.load(code.objects, target)
    from weft.runtime.devices.sim.library import SimLibrary

    return SimLibrary(code.manifest.devices,
                      lambda: native(backend.load(code.objects, target)))


def unpickled(payload: bytes, options: CompileOptions) -> CompiledModel | ForeignModel:
    """The executable of a pickle, which holds code and weights, but not the model."""
    return open_code(ModelCode.from_payload(memoryview(payload)), Stages(None, options))


def unpickled_for_all_sizes(payload: bytes, options: CompileOptions) -> DynamicModel | ForeignModel:
    """The executable of a pickled program with symbolic sizes."""
    def compile_at(_: CompileOptions) -> NoReturn:
        raise ArtifactError("an unpickled model cannot be compiled for other shapes",
                            help="use specialize() in the process that compiled it")

    return open_for_all_sizes(ModelCode.from_payload(memoryview(payload)), Stages(None, options),
                              compile_at)
