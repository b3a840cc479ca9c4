"""Systems of equations with a triangular matrix."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64
from weft.topi.upcast import converted


def substitute(a, b, x, is_lower, has_ones) -> None:  # noqa: ANN001
    """Solve ``a x = b`` by forward or backward substitution; only one triangle of ``a`` is read."""
    size = a.shape[1]
    for n in range(a.shape[0]):
        for step in range(size):
            i = step if is_lower else size - 1 - step
            first, last = (0, i) if is_lower else (i + 1, size)
            for j in range(b.shape[2]):
                x[n, i, j] = b[n, i, j]
            for k in range(first, last):
                factor = a[n, i, k]
                for j in range(b.shape[2]):
                    x[n, i, j] -= factor * x[n, k, j]
            if not has_ones:
                for j in range(b.shape[2]):
                    x[n, i, j] /= a[n, i, i]


def triangular_solve(a: te.Tensor, b: te.Tensor, *, lower: bool, unit: bool) -> te.Tensor:
    """``x`` with ``a x = b``; ``unit`` assumes a unit diagonal."""
    x = te.python_extern([b.shape], [converted(a, float64), converted(b, float64)], substitute,
                         [float64], scalars=[lower, unit], name="triangular_solve")[0]
    return converted(x, b.dtype)
