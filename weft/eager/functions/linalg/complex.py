"""Complex matrices as real ones of twice the size: each element ``a + bi`` is [[a, -b], [b, a]].

Sums, products and inverses of such real matrices are those of the complex ones, symmetric ones are
those of Hermitian ones, and triangles with real diagonals stay triangles. So inverses, solutions,
Cholesky factors, exponentials and pseudo-inverses are those of the real matrices, whose eigenvalues
and singular values are the complex ones, each twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.functions.complex import complex, is_complex
from weft.eager.functions.shape import stack


def embedded(x: Any) -> Any:
    """The real matrices (2 rows, 2 columns) of complex ones."""
    *batch, rows, columns = x.shape
    top, bottom = stack([x.real, -x.imag], -1), stack([x.imag, x.real], -1)
    return stack([top, bottom], -3).reshape(*batch, 2 * rows, 2 * columns)


def extracted(x: Any) -> Any:
    """The complex matrices of real ones."""
    *batch, rows, columns = x.shape
    parts = x.reshape(*batch, rows // 2, 2, columns // 2, 2)
    return complex(parts[..., 0, :, 0], parts[..., 1, :, 0])


def by_matrices(function: Callable[..., Any], x: Any, *rest: Any, **named: Any) -> Any:
    """The complex matrix that a function of real ones gives."""
    return extracted(function(embedded(x), *rest, **named))


def by_values(function: Callable[..., Any], x: Any, *rest: Any, **named: Any) -> Any:
    """The values that a function of real matrices gives twice."""
    return function(embedded(x), *rest, **named)[..., ::2]


__all__ = ["by_matrices", "by_values", "embedded", "extracted", "is_complex"]
