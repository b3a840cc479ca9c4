"""Kernels with symbolic sizes, run at sizes that are chosen after they were built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.codegen import backend_of
from weft.ir.expr import Call, Function, Var
from weft.ir.shape import substitute_dim
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.runtime.sizes import evaluate
from weft.strategy.lower_function import lower_function
from weft.target import CpuTarget


@dataclass(frozen=True)
class SymbolicKernel:
    """One kernel; ``run(arrays, sizes)`` gives its result for the values of its symbols."""

    implementation: str
    result: TensorType
    sizes: tuple[Any, ...]
    workspace: Any
    call: Callable[..., None]
    library: object  # unloads the code when it is collected

    def run(self, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
        shape = tuple(int(substitute_dim(d, dict(sizes))) for d in self.result.shape)
        out = np.full(shape, 7, self.result.dtype.numpy)
        held = [np.ascontiguousarray(a) for a in arrays]
        scalars = [evaluate(size, dict(sizes)) for size in self.sizes]
        scratch = np.zeros(evaluate(self.workspace, dict(sizes)) + 64, np.uint8)
        aligned = (scratch.ctypes.data + 63) // 64 * 64
        self.call(*(a.ctypes.data for a in (*held, out)), *scalars,
                  *([aligned] if self.workspace else []))
        return out


def build(call: Call, params: Sequence[Var], target: CpuTarget | None = None) -> SymbolicKernel:
    """The kernel of one call over ``params``, whose types may contain symbols."""
    target = target or CpuTarget.host()
    typed = infer_expr(call)
    function = Function(tuple(params), typed, typed.checked_type, attrs={"primitive": True})
    lowered = lower_function(function, target)
    backend = backend_of(target)
    code = backend.build_kernel(lowered.func, target)
    library = backend.load([code, *backend.support_objects(target)], target)
    workspace = lowered.func.attrs.get("workspace_bytes", 0)
    count = len(params) + 1 + len(lowered.sizes) + bool(workspace)
    assert isinstance(typed.checked_type, TensorType)
    return SymbolicKernel(lowered.implementation, typed.checked_type, lowered.sizes, workspace,
                          library.kernel(lowered.func.name, count), library)
