"""Linear algebra under the names that torch has outside of ``torch.linalg``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from weft.eager.emitter import call
from weft.eager.functions.linalg import factors, solving, spectral
from weft.eager.functions.linalg.matrices import (
    batch_of,
    identity,
    in_dtype,
    matrices,
    narrow,
    same_dtype,
    squares,
    transposed,
    triangle,
    wide,
)
from weft.eager.functions.linear import matmul
from weft.eager.signature import public

TriangularSolveResult = namedtuple(  # noqa: PYI024 - torch's
    "TriangularSolveResult", ["solution", "cloned_coefficient"])
OlderSvdResult = namedtuple("OlderSvdResult", ["U", "S", "V"])  # noqa: PYI024
GeqrfResult = namedtuple("GeqrfResult", ["a", "tau"])  # noqa: PYI024

cholesky, matrix_exp, orgqr = factors.cholesky, factors.matrix_exp, factors.householder_product
det, slogdet, logdet, inverse = solving.det, solving.slogdet, solving.logdet, solving.inv


@public
def cholesky_solve(input: Any, L: Any, upper: bool = False) -> Any:
    """``X`` with ``A X = input`` for the Cholesky factor of ``A``."""
    b, factor = same_dtype(matrices(input, "cholesky_solve"), squares(L, "cholesky_solve"))
    lower = transposed(factor) if upper else factor
    half = solving.solve_triangular(lower, b, upper=False)
    return solving.solve_triangular(transposed(lower), half, upper=True)


@public
def cholesky_inverse(L: Any, upper: bool = False) -> Any:
    """The inverse of the matrix with a Cholesky factor."""
    x = squares(L, "cholesky_inverse")
    size = x.shape[-1]
    return cholesky_solve(call("cast", identity(size, size), dtype=x.dtype.name), x, upper)


@public
def lu(A: Any, pivot: bool = True, get_infos: bool = False) -> tuple[Any, ...]:
    """Packed factors and pivots; with ``get_infos`` what ``lu_factor_ex`` says of each matrix."""
    found = factors.lu_factor_ex(A, pivot=pivot)
    return found if get_infos else found[:2]


@public
def geqrf(input: Any) -> GeqrfResult:
    """R, the reflections of Q below its diagonal, and their scales."""
    x = matrices(input, "geqrf")
    packed, scales = call("linalg.qr", wide(x))
    size = min(x.shape[-2:])
    return GeqrfResult(narrow(packed, x, *x.shape[-2:]),
                       in_dtype(scales, x.dtype.name).reshape((*x.shape[:-2], size)))


@public
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """``other`` times the square Q of reflections, or its transpose: from the left or the right."""
    x, scales, y = same_dtype(matrices(input, "ormqr"), tau, matrices(other, "ormqr"))
    rows, batch = x.shape[-2], wide(x).shape[0]
    line = in_dtype(scales, "float64").reshape((batch, scales.shape[-1]))
    whole = narrow(call("linalg.reflect", wide(x), line, batch_of(identity(rows, rows), (batch,))),
                   x, rows, rows)
    factor = transposed(whole) if transpose else whole
    return matmul(factor, y) if left else matmul(y, factor)


@public
def lu_solve(b: Any, LU_data: Any, LU_pivots: Any) -> Any:
    """``X`` with ``A X = b`` for the factors and pivots of ``A``."""
    return solving.lu_solve(LU_data, LU_pivots, b)


@public
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
              ) -> factors.LuResult:
    """P, L and U of packed factors and pivots; those that are not asked for are empty."""
    x = matrices(LU_data, "lu_unpack")
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    none = call("zeros", shape=(0,), dtype=x.dtype.name)
    order = lower = upper = none
    packed = wide(x)
    if unpack_data:
        lower = narrow(triangle(packed[:, :, :size], lower=True, offset=-1)
                       + identity(rows, size), x, rows, size)
        upper = narrow(triangle(packed[:, :size], lower=False), x, size, columns)
    if unpack_pivots:
        moved = call("cast", LU_pivots, dtype="int32").reshape((packed.shape[0], size))
        place = call("argsort", call("linalg.pivot_order", moved, rows=rows), axis=1,
                     dtype="int64")
        order = narrow(call("one_hot", place, 1.0, 0.0, depth=rows), x, rows, rows)
    return factors.LuResult(order, lower, upper)


@public
def pinverse(input: Any, rcond: Any = 1e-15) -> Any:
    """The pseudo-inverses of matrices."""
    return spectral.pinv(input, rcond=rcond)


@public
def qr(input: Any, some: bool = True) -> factors.QrResult:
    """Q and R; ``some=False`` makes Q square."""
    return factors.qr(input, "reduced" if some else "complete")


@public
def svd(input: Any, some: bool = True, compute_uv: bool = True) -> OlderSvdResult:
    """U, S and V with ``input = U diag(S) V'``; ``some=False`` makes U and V square."""
    left, values, right = spectral.svd(input, not some)
    if not compute_uv:
        left, right = left.detach() * 0, right.detach() * 0
    return OlderSvdResult(left, values, transposed(right))


@public
def triangular_solve(b: Any, A: Any, upper: bool = True, transpose: bool = False,
                     unitriangular: bool = False) -> TriangularSolveResult:
    """``X`` with ``A X = b`` for a triangle of ``A``, or of its transpose; and ``A``."""
    matrix = transposed(squares(A, "triangular_solve")) if transpose else A
    found = solving.solve_triangular(matrix, b, upper=bool(upper) != bool(transpose),
                                     unitriangular=unitriangular)
    return TriangularSolveResult(found, A.clone())
