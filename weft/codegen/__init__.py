"""Code generation: one back end per kind of target, imported when the kind is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.codegen.backend import BACKENDS, Backend, TextStage, backend_of, register_backend
from weft.codegen.index import KINDS, NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.codegen.cuda.backend import CUDA_BACKEND
    from weft.codegen.llvm.backend import CPU_BACKEND
else:
    load_names_lazily(__name__, NAMES[__name__])

BACKENDS.add_index(KINDS)

__all__ = ["BACKENDS", "CPU_BACKEND", "CUDA_BACKEND", "Backend", "TextStage", "backend_of",
           "register_backend"]
