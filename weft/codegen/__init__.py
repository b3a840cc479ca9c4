"""Code generation: the interface of back ends, and the back end for CPUs."""

from weft.codegen.backend import BACKENDS, Backend, TextStage, backend_of, register_backend
from weft.codegen.llvm.backend import CPU_BACKEND

register_backend(CPU_BACKEND)

__all__ = ["BACKENDS", "CPU_BACKEND", "Backend", "TextStage", "backend_of", "register_backend"]
