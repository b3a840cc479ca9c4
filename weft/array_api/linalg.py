"""The extension ``linalg``: functions of matrices, or of stacks of them, in the last two axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import linalg
from weft.array_api.data_types import broadcast_arrays, promoted
from weft.array_api.linear import matmul, matrix_transpose, tensordot, vecdot
from weft.array_api.statistics import sum as total
from weft.eager.tensor import Tensor
from weft.linalg import (
    cholesky,
    det,
    diagonal,
    eigh,
    eigvalsh,
    inv,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    svd,
    svdvals,
)
from weft.support.errors import InvalidInputError

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices: "fro", "nuc", or 1, 2 or infinity, with either sign."""
    if ord not in ("nuc", 2, -2):  # which need the singular values
        x = _magnitudes(x)
    return linalg.matrix_norm(x, ord, keepdim=keepdims)


def _magnitudes(x: Tensor) -> Tensor:
    return x.abs() if x.is_complex() else x


def vector_norm(
    x: Tensor, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """``sum(abs(x)**ord)**(1 / ord)`` along axes, by default of all elements."""
    x = _magnitudes(x)
    if isinstance(axis, tuple) and not axis:  # each element is a vector of its own
        return linalg.vector_norm(x[..., None], ord, -1)
    return linalg.vector_norm(x, ord, axis, keepdims)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three numbers along an axis, other axes broadcast."""
    one, two = broadcast_arrays(*promoted(x1, x2))
    at = axis if axis < 0 else axis - one.ndim
    if any(x.ndim < -at or x.shape[at] != 3 for x in (x1, x2)):
        raise InvalidInputError("cross takes vectors of three numbers", where=f"axis {axis}",
                                got=f"{tuple(x1.shape)} and {tuple(x2.shape)}")
    return linalg.cross(one, two, dim=at)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal, in the dtype of ``sum``."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of elements of two vectors."""
    a, b = promoted(x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise InvalidInputError("outer takes vectors", got=f"{tuple(a.shape)}, {tuple(b.shape)}")
    return a[:, None] * b[None]


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """``X`` with ``x1 X = x2``; ``x2`` holds matrices, or is one vector."""
    a, b = promoted(x1, x2)
    if b.ndim == 1:
        return linalg.solve(a, b[:, None])[..., 0]
    # torch takes the matrices for vectors where the shapes allow it.
    return linalg.solve(a, b if a.ndim != b.ndim + 1 else b[None])
