"""Code generation: one back end per kind of target."""

from weft.codegen.backend import BACKENDS, Backend, TextStage, backend_of, register_backend
from weft.codegen.cuda.backend import CUDA_BACKEND
from weft.codegen.llvm.backend import CPU_BACKEND

register_backend(CPU_BACKEND)
register_backend(CUDA_BACKEND)

__all__ = ["BACKENDS", "CPU_BACKEND", "CUDA_BACKEND", "Backend", "TextStage", "backend_of",
           "register_backend"]
