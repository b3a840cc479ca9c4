"""The executable of a model's code."""

from __future__ import annotations

import functools

from weft.codegen import backend_of
from weft.compiler.build.external_kernel import errors_raised
from weft.compiler.compilation import Compilation, CompileAt
from weft.compiler.options import CompileOptions
from weft.compiler.program.forms import PerShape
from weft.compiler.program.model_code import ModelCode
from weft.compiler.stages import Stages
from weft.compiler.vm.specialize import Specializer
from weft.runtime.executable import Executable, open_executable, open_per_shape
from weft.runtime.launchers import Code
from weft.runtime.library import Library
from weft.support import trace


def open_program(code: ModelCode | PerShape, stages: Stages, compile_at: CompileAt | None = None
                 ) -> Executable:
    """The executable of a model's code; ``compile_at`` compiles it for sizes that code lacks."""
    if isinstance(code, PerShape):
        return open_per_shape(code.manifest, Compilation(stages, None, compile_at), code.reason,
                              code.start)
    manifest, options = code.manifest, stages.options
    around = functools.partial(errors_raised, code.callbacks) if code.callbacks else None
    specialize = None if manifest.vm is None else Specializer(options)
    with trace.span("load"):
        return open_executable(
            Code(manifest, functools.partial(_load, code, options), code.constants, around,
                 specialize, code.start),
            Compilation(stages, code, compile_at))


def _load(code: ModelCode, options: CompileOptions) -> Library:
    target = options.target_of(code.manifest)
    return backend_of(target).load(code.objects, target)


def unpickled(payload: bytes, options: CompileOptions) -> Executable:
    """The executable of a pickle, which holds code and weights, but not the model."""
    return open_program(ModelCode.from_payload(memoryview(payload)), Stages(None, options))
