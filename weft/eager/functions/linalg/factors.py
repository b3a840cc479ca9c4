"""Factorizations: LU, Cholesky, QR, and reflections."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

from weft.eager.emitter import call
from weft.eager.functions.linalg.complex import by_matrices, embedded, extracted, is_complex
from weft.eager.functions.linalg.matrices import (
    batch_of,
    identity,
    in_dtype,
    matrices,
    narrow,
    require_zero,
    same_dtype,
    squares,
    symmetric,
    transposed,
    triangle,
    wide,
)
from weft.eager.functions.linalg.solving import narrow_info
from weft.eager.signature import public
from weft.support.errors import InvalidInputError

LuFactorResult = namedtuple("LuFactorResult", ["LU", "pivots"])  # noqa: PYI024 - torch's
LuFactorExResult = namedtuple("LuFactorExResult", ["LU", "pivots", "info"])  # noqa: PYI024
LuResult = namedtuple("LuResult", ["P", "L", "U"])  # noqa: PYI024
QrResult = namedtuple("QrResult", ["Q", "R"])  # noqa: PYI024
CholeskyExResult = namedtuple("CholeskyExResult", ["L", "info"])  # noqa: PYI024


def _pivoted(pivot: bool, what: str) -> None:
    if not pivot:
        raise InvalidInputError(f"{what} without pivots", help="leave pivot=True",
                                expected="pivot=True")


@public
def lu_factor(A: Any, *, pivot: bool = True) -> LuFactorResult:
    """The packed factors of ``lu``, and the row exchanged with each row, counted from 1."""
    return LuFactorResult(*lu_factor_ex(A, pivot=pivot)[:2])


@public
def lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> LuFactorExResult:
    """``lu_factor``, and for each matrix 0 or the position of the first zero pivot."""
    _pivoted(pivot, "lu_factor")
    x = matrices(A, "lu_factor")
    packed, pivots, _, info = call("linalg.lu", wide(x))
    found = narrow(packed, x, *x.shape[-2:])
    info = narrow_info(info, x)
    if check_errors:
        require_zero(found, info, "lu_factor: the matrix is singular")
    pivots = pivots.reshape((*x.shape[:-2], min(x.shape[-2:])))
    return LuFactorExResult(found, pivots, info)


@public
def lu(A: Any, *, pivot: bool = True) -> LuResult:
    """P, L and U with ``A = P L U``; L has ones on its diagonal."""
    _pivoted(pivot, "lu")
    x = matrices(A, "lu")
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    packed, _, order, _ = call("linalg.lu", wide(x))
    lower = triangle(packed[:, :, :size], lower=True, offset=-1) + identity(rows, size)
    upper = triangle(packed[:, :size], lower=False)
    permutation = call("one_hot", call("argsort", order, axis=1, dtype="int64"), 1.0, 0.0,
                       depth=rows)
    return LuResult(narrow(permutation, x, rows, rows), narrow(lower, x, rows, size),
                    narrow(upper, x, size, columns))


@public
def cholesky(A: Any, *, upper: bool = False) -> Any:
    """The lower factor L of ``A = L L'``, or the upper one; ``LinAlgError`` unless definite."""
    found, info = cholesky_ex(A, upper=upper)
    require_zero(found, info, "cholesky: the matrix is not positive definite")
    return found


@public
def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> CholeskyExResult:
    """``cholesky``, and for each matrix 0 or the order of the first minor that is not positive."""
    if is_complex(A):
        found, info = cholesky_ex(embedded(A), upper=upper, check_errors=check_errors)
        return CholeskyExResult(extracted(found), (info + 1) // 2)
    x = squares(A, "cholesky")
    found, info = call("linalg.cholesky", wide(symmetric(x, lower=not upper)))
    found, info = narrow(found, x, *x.shape[-2:]), narrow_info(info, x)
    found = transposed(found) if upper else found
    if check_errors:
        require_zero(found, info, "cholesky_ex: the matrix is not positive definite")
    return CholeskyExResult(found, info)


@public
def qr(A: Any, mode: str = "reduced") -> QrResult:
    """Q with orthonormal columns and the upper triangle R with ``A = Q R``.

    ``mode``: "reduced", "complete" (Q is square), or "r" (Q is empty).
    """
    if mode not in ("reduced", "complete", "r"):
        raise InvalidInputError("qr: unknown mode", expected="reduced, complete or r",
                                got=repr(mode))
    x = matrices(A, "qr")
    rows, columns = x.shape[-2:]
    size = rows if mode == "complete" else min(rows, columns)
    if not min(rows, columns):
        return QrResult(narrow(batch_of(identity(rows, size), (wide(x).shape[0],)), x, rows, size),
                        x[..., :size, :])
    packed, scales = call("linalg.qr", wide(x))
    upper = narrow(triangle(packed[:, :size], lower=False), x, size, columns)
    if mode == "r":
        return QrResult(call("zeros", shape=(0,), dtype=x.dtype.name), upper)
    whole = batch_of(identity(rows, size), (packed.shape[0],))
    return QrResult(narrow(call("linalg.reflect", packed, scales, whole), x, rows, size), upper)


@public
def householder_product(A: Any, tau: Any) -> Any:
    """The first columns of the product of the reflections below the diagonals, with scales."""
    x, scales = same_dtype(matrices(A, "householder_product"), tau)
    rows, columns = x.shape[-2:]
    count = scales.shape[-1]
    if columns > rows or count > columns:
        raise InvalidInputError("householder_product: too many columns or scales",
                                got=f"{tuple(x.shape)} and {tuple(scales.shape)}")
    packed = wide(x)
    whole = batch_of(identity(rows, columns), (packed.shape[0],))
    line = in_dtype(scales, "float64").reshape((packed.shape[0], count))
    found = call("linalg.reflect", packed, line, whole) if count else packed * 0.0 + whole
    return narrow(found, x, rows, columns)


@public
def matrix_exp(A: Any) -> Any:
    """The exponentials of square matrices: the sum of all ``A**n / n!``."""
    if is_complex(A):
        return by_matrices(matrix_exp, A)
    x = squares(A, "matrix_exp")
    *batch, size, _ = x.shape
    flat = x.reshape((math.prod(batch), size, size))
    return narrow(call("linalg.matrix_exp", flat), x, size, size)
