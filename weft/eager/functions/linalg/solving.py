"""Determinants, inverses, and systems of equations."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.functions.linalg.complex import by_matrices, embedded, extracted, is_complex
from weft.eager.functions.linalg.matrices import (
    batch_of,
    common_batch,
    diagonal_of,
    identity,
    matrices,
    narrow,
    require_zero,
    same_dtype,
    squares,
    transposed,
    wide,
)
from weft.eager.signature import checked, public
from weft.support.errors import InvalidInputError

SlogdetResult = namedtuple("SlogdetResult", ["sign", "logabsdet"])  # noqa: PYI024 - torch's
InvExResult = namedtuple("InvExResult", ["inverse", "info"])  # noqa: PYI024
SolveExResult = namedtuple("SolveExResult", ["result", "info"])  # noqa: PYI024
_SINGULAR = "the matrix is singular"


def _sign(pivots: Any) -> Any:
    """1 for an even number of row exchanges, else -1, (count,) in float64."""
    own = np.arange(1, pivots.shape[1] + 1, dtype=np.int32)
    moved = call("sum", call("cast", call("not_equal", pivots, own), dtype="int64"), axis=(1,))
    odd = call("floor_mod", moved, 2)
    return 1.0 - call("cast", odd, dtype="float64") * 2.0


@public
def det(A: Any) -> Any:
    """The determinants of square matrices."""
    x = squares(A, "det")
    packed, pivots, _, _ = call("linalg.lu", wide(x))
    return narrow(call("prod", diagonal_of(packed), axis=(1,)) * _sign(pivots), x)


@public
def slogdet(A: Any) -> SlogdetResult:
    """The signs of determinants and the logarithms of their magnitudes."""
    x = squares(A, "slogdet")
    packed, pivots, _, _ = call("linalg.lu", wide(x))
    line = diagonal_of(packed)
    sign = call("prod", call("sign", line.detach()), axis=(1,)) * _sign(pivots)
    size = call("sum", call("log", call("abs", line)), axis=(1,))
    return SlogdetResult(narrow(sign, x), narrow(size, x))


@checked
def logdet(input: Any) -> Any:
    """The logarithms of determinants, NaN for negative ones."""
    sign, size = slogdet(input)
    return call("where", sign < 0, math.nan, size)


@public
def inv(A: Any) -> Any:
    """The inverses of square matrices; ``LinAlgError`` for singular ones."""
    if is_complex(A):
        return by_matrices(inv, A)
    found, info = _inverse(squares(A, "inv"))
    require_zero(found, info, f"inv: {_SINGULAR}")
    return found


@public
def inv_ex(A: Any, *, check_errors: bool = False) -> InvExResult:
    """The inverses, and for each 0 or the position of the first zero pivot."""
    if is_complex(A):
        found, info = inv_ex(embedded(A), check_errors=check_errors)
        return InvExResult(extracted(found), info)
    found, info = _inverse(squares(A, "inv_ex"))
    if check_errors:
        require_zero(found, info, f"inv_ex: {_SINGULAR}")
    return InvExResult(found, info)


def _inverse(x: Any) -> tuple[Any, Any]:
    size = x.shape[-1]
    packed, _, order, info = call("linalg.lu", wide(x))
    right = batch_of(identity(size, size), (packed.shape[0],))
    return narrow(_substituted(packed, order, right), x, size, size), narrow_info(info, x)


def narrow_info(info: Any, like: Any) -> Any:
    """Numbers for each matrix of ``like``, int32."""
    return info.reshape(tuple(like.shape[:-2]))


def _substituted(packed: Any, order: Any, b: Any) -> Any:
    """``x`` with ``P L U x = b``."""
    y = call("linalg.triangular_solve", packed, _permuted(b, order), lower=True, unit=True)
    return call("linalg.triangular_solve", packed, y, lower=False)


def _mirrored(packed: Any, order: Any, b: Any) -> Any:
    """``x`` with ``U' L' P' x = b``."""
    mirror = transposed(packed)
    y = call("linalg.triangular_solve", mirror, b, lower=True)
    z = call("linalg.triangular_solve", mirror, y, lower=False, unit=True)
    return _permuted(z, call("argsort", order, axis=1, dtype="int64"))


def _permuted(b: Any, order: Any) -> Any:
    """The rows of ``b`` in another order."""
    at = call("broadcast_to", call("expand_dims", order, axis=2), shape=tuple(b.shape))
    return call("gather", b, at, axis=1)


@public
def solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """``X`` with ``A X = B``, or ``X A = B``; ``LinAlgError`` for singular matrices.

    ``B`` holds matrices, or vectors if it has the shape of ``A`` without the last axis or one axis.
    """
    found, info = _solved(A, B, left, "solve")
    require_zero(found, info, f"solve: {_SINGULAR}")
    return found


@public
def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """``solve``, and for each matrix 0 or the position of the first zero pivot."""
    found, info = _solved(A, B, left, "solve_ex")
    if check_errors:
        require_zero(found, info, f"solve_ex: {_SINGULAR}")
    return SolveExResult(found, info)


def _solved(A: Any, B: Any, left: bool, what: str) -> tuple[Any, Any]:
    a, b = same_dtype(squares(A, what, complex_too=True), B)
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1]))
    if is_vector:
        b = call("expand_dims", b, axis=b.ndim)
    if a.dtype.is_complex:
        found, info = _solved(embedded(a), embedded(b), left or is_vector, what)
        found = extracted(found)
        return found.squeeze(-1) if is_vector else found, info
    packed, _, order, info = call("linalg.lu", wide(a))
    found = _with_factors(packed, order, a, b, left=left or is_vector, adjoint=False, what=what)
    return call("squeeze", found, axis=(found.ndim - 1,)) if is_vector else found, \
        narrow_info(info, a)


def _with_factors(packed: Any, order: Any, a: Any, b: Any, *, left: bool, adjoint: bool,
                  what: str) -> Any:
    """Solve with the factors of ``a``, batches broadcast; ``adjoint`` transposes ``a``."""
    size = a.shape[-1]
    common = common_batch(a, b, what)
    right = batch_of(b if left else transposed(b), common)
    if right.shape[-2] != size:
        raise InvalidInputError(f"{what}: the right-hand side does not fit", expected=f"{size} rows"
                                if left else f"{size} columns", got=tuple(b.shape))
    lead = tuple(a.shape[:-2])
    packed = wide(batch_of(packed.reshape((*lead, size, size)), common))
    order = call("broadcast_to", order.reshape((*lead, size)), shape=(*common, size))
    order = order.reshape((packed.shape[0], size))
    method = _substituted if adjoint != left else _mirrored
    found = narrow(method(packed, order, wide(right)), right, *right.shape[-2:])
    return found if left else transposed(found)


@public
def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """``solve`` with the factors and pivots of ``lu_factor``; ``adjoint`` transposes the matrix."""
    packed, b = same_dtype(squares(LU, "lu_solve"), B)
    size = packed.shape[-1]
    order = call("linalg.pivot_order", call("cast", pivots, dtype="int32").reshape(
        (math.prod(packed.shape[:-2]), size)), rows=size)
    return _with_factors(wide(packed), order, packed, matrices(b, "lu_solve"), left=left,
                         adjoint=adjoint, what="lu_solve")


@public
def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True,
                     unitriangular: bool = False) -> Any:
    """``solve`` for a triangle of ``A``; ``unitriangular`` reads ones on its diagonal."""
    a, b = same_dtype(squares(A, "solve_triangular"), matrices(B, "solve_triangular"))
    if not left:
        return transposed(solve_triangular(transposed(a), transposed(b), upper=not upper,
                                           unitriangular=unitriangular))
    common = common_batch(a, b, "solve_triangular")
    a, b = batch_of(a, common), batch_of(b, common)
    if b.shape[-2] != a.shape[-1]:
        raise InvalidInputError("solve_triangular: the right-hand side does not fit",
                                expected=f"{a.shape[-1]} rows", got=tuple(b.shape))
    found = call("linalg.triangular_solve", wide(a), wide(b), lower=not upper,
                 unit=bool(unitriangular))
    return narrow(found, b, *b.shape[-2:])


@public
def tensorsolve(A: Any, B: Any, dims: Any = None) -> Any:
    """``X`` with ``tensordot(A, X, X.ndim) = B``; ``dims`` are first moved to the end of ``A``."""
    a, b = same_dtype(A, B)
    if dims is not None:
        moved = [d % a.ndim for d in dims]
        a = a.permute([d for d in range(a.ndim) if d not in moved] + moved)
    shape = tuple(a.shape[b.ndim:])
    size = math.prod(shape)
    if b.numel() != size:
        raise InvalidInputError("tensorsolve: the products of the sizes differ",
                                expected=size, got=b.numel())
    return solve(a.reshape((size, size)), b.reshape((size,))).reshape(shape)


@public
def tensorinv(A: Any, ind: int = 2) -> Any:
    """The inverse of the linear map that a tensor is from its last axes to its first ``ind``."""
    (a,) = same_dtype(A)
    rows, columns = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise InvalidInputError("tensorinv: the products of the sizes differ",
                                got=f"{rows} and {columns}")
    size = math.prod(rows)
    return inv(a.reshape((size, size))).reshape((*columns, *rows))
