"""Eigenvalues and singular values, and what follows from them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.functions.linalg.complex import by_matrices, by_values, embedded, is_complex
from weft.eager.functions.linalg.matrices import (
    common_batch,
    in_dtype,
    matrices,
    narrow,
    same_dtype,
    squares,
    symmetric,
    transposed,
    wide,
    with_slope_of,
)
from weft.eager.functions.linear import matmul
from weft.eager.record import as_node, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError

EighResult = namedtuple("EighResult", ["eigenvalues", "eigenvectors"])  # noqa: PYI024 - torch's
SvdResult = namedtuple("SvdResult", ["U", "S", "Vh"])  # noqa: PYI024
LstsqResult = namedtuple(  # noqa: PYI024
    "LstsqResult", ["solution", "residuals", "rank", "singular_values"])
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@public
def eigh(A: Any, UPLO: str = "L") -> EighResult:
    """The eigenvalues of symmetric matrices, ascending, and eigenvectors as columns.

    ``UPLO`` says which triangle is read. The first element of largest magnitude of each vector is
    positive.
    """
    if UPLO not in ("L", "U"):
        raise InvalidInputError("eigh: unknown triangle", expected="L or U", got=repr(UPLO))
    x = squares(A, "eigh")
    size = x.shape[-1]
    values, vectors = call("linalg.eigh", wide(symmetric(x, lower=UPLO == "L")))
    return EighResult(narrow(values, x, size), narrow(vectors, x, size, size))


@public
def eigvalsh(A: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices, ascending."""
    if is_complex(A):
        return by_values(eigvalsh, A, UPLO)
    return eigh(A, UPLO)[0]


@public
def svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> SvdResult:  # noqa: ARG001
    """U, the singular values S, descending, and V' with ``A = U diag(S) V'``.

    ``full_matrices`` makes U and V' square. The method is the same, whatever ``driver``.
    """
    x = matrices(A, "svd")
    rows, columns = x.shape[-2:]
    is_tall = rows >= columns
    given = wide(x if is_tall else transposed(x))
    left, values, right = call("linalg.svd", given, full=bool(full_matrices))
    if not is_tall:
        left, right = right, left
    size = min(rows, columns)
    return SvdResult(narrow(left, x, rows, left.shape[2]), narrow(values, x, size),
                     narrow(transposed(right), x, right.shape[2], columns))


@public
def svdvals(A: Any, *, driver: str | None = None) -> Any:
    """The singular values of matrices, descending."""
    if is_complex(A):
        return by_values(svdvals, A, driver=driver)
    return svd(A, False, driver=driver)[1]


def _limits(largest: Any, shape: tuple[int, ...], name: str, atol: Any, rtol: Any) -> Any:
    """Below which singular values count as 0, with an axis of size 1."""
    if rtol is None:
        tight = max(shape[-2:]) * float(np.finfo(name).eps)
        rtol = tight if atol is None else call("where", call("greater", _wide_number(atol), 0.0),
                                               0.0, tight)
    relative = _column(rtol) * largest
    return relative if atol is None else call("maximum", relative, _column(atol))


def _wide_number(value: Any) -> Any:
    return in_dtype(wrap(as_node(value)), "float64")


def _column(value: Any) -> Any:
    """A number, or one for each matrix, in float64 with a new last axis."""
    found = _wide_number(value)
    return call("expand_dims", found, axis=found.ndim)


def _absolute(x: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """U, magnitudes of singular values descending, and V, in float64."""
    whole = in_dtype(x, "float64")
    if not hermitian:
        left, values, right = svd(whole, False)
        return left, values, transposed(right)
    values, vectors = eigh(whole)
    sign = call("where", values < 0, -1.0, call("ones", shape=(), dtype="float64"))
    return vectors, call("abs", values), vectors * call("expand_dims", sign, axis=sign.ndim - 1)


@public
def matrix_rank(A: Any, tol: Any = None, *, atol: Any = None, rtol: Any = None,
                hermitian: bool = False) -> Any:
    """How many singular values exceed the larger of ``atol`` and ``rtol`` times the largest.

    ``tol`` is the older argument for ``atol`` alone.
    """
    if is_complex(A):
        twice = matrix_rank(embedded(A), tol, atol=atol, rtol=rtol, hermitian=hermitian)
        return twice // 2
    x = matrices(A, "matrix_rank").detach()
    if not x.shape[-1] or not x.shape[-2]:
        return call("zeros", shape=tuple(x.shape[:-2]), dtype="int64")
    if tol is not None:
        atol, rtol = tol, 0.0
    values = _absolute(x, hermitian)[1]
    limits = _limits(call("max", values, axis=values.ndim - 1, keepdims=True), tuple(x.shape),
                     x.dtype.name, atol, rtol)
    return call("sum", call("cast", values > limits, dtype="int64"), axis=values.ndim - 1)


@public
def pinv(A: Any, rcond: Any = None, *, atol: Any = None, rtol: Any = None,
         hermitian: bool = False) -> Any:
    """The Moore-Penrose inverses: singular values up to a limit, as in ``matrix_rank``, are 0.

    ``rcond`` is the older argument for ``rtol``.
    """
    if is_complex(A):
        return by_matrices(pinv, A, rcond, atol=atol, rtol=rtol, hermitian=hermitian)
    x = matrices(A, "pinv")
    rows, columns = x.shape[-2:]
    if not rows or not columns:
        return transposed(x)
    rtol = rcond if rtol is None else rtol
    left, values, right = _absolute(x, hermitian)
    limits = _limits(call("max", values, axis=values.ndim - 1, keepdims=True).detach(),
                     tuple(x.shape), x.dtype.name, atol, rtol)
    counts = values > limits
    inverse = call("where", counts, 1.0 / call("where", counts, values, 1.0), 0.0)
    found = matmul(right * call("expand_dims", inverse, axis=inverse.ndim - 1), transposed(left))
    found = in_dtype(found, x.dtype.name)
    if hermitian and x.requires_grad:  # torch's gradient is that of matrices of any kind
        return with_slope_of(found, pinv(x, atol=atol, rtol=rtol))
    return found


@public
def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> LstsqResult:
    """``X`` of least norm for which ``A X - B`` has the least sum of squares.

    ``B`` holds matrices, or a vector for one matrix. ``driver``, one of LAPACK's, decides as in
    torch which results are empty: ``residuals``, the sums of squares of matrices of full rank with
    more rows than columns, are with "gelsy" (the default), ``rank`` is with "gels", and
    ``singular_values`` are with both.
    """
    driver = "gelsy" if driver is None else driver
    if driver not in _DRIVERS:
        raise InvalidInputError("lstsq: unknown driver", expected=", ".join(_DRIVERS),
                                got=repr(driver))
    a, b = same_dtype(matrices(A, "lstsq"), B)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    right = call("expand_dims", b, axis=b.ndim) if is_vector else b
    common_batch(a, right, "lstsq")
    if right.shape[-2] != a.shape[-2]:
        raise InvalidInputError("lstsq: the right-hand side does not fit", got=tuple(b.shape),
                                expected=f"{a.shape[-2]} rows")
    limit = max(a.shape[-2:]) * float(np.finfo(a.dtype.numpy).eps) if rcond is None else rcond
    solution = matmul(pinv(in_dtype(a, "float64"), rtol=limit), in_dtype(right, "float64"))
    nothing = call("zeros", shape=(0,), dtype=a.dtype.name)
    values = svdvals(a.detach()) if driver in ("gelsd", "gelss") else nothing
    rank = matrix_rank(a, rtol=limit) if driver != "gels" else nothing.to("int64")
    residuals = _residuals(a, right, solution, driver, rank)
    found = in_dtype(solution, a.dtype.name)
    return LstsqResult(call("squeeze", found, axis=(found.ndim - 1,)) if is_vector else found,
                       residuals, rank, values)


def _residuals(a: Any, b: Any, solution: Any, driver: str, rank: Any) -> Any:
    """The sums of squares, if all matrices have full rank; unless "gels", ranks are looked at."""
    rows, columns = a.shape[-2:]
    if rows <= columns or driver == "gelsy" or (
            driver != "gels" and not bool((rank == columns).all().item())):
        return call("zeros", shape=(0,), dtype=a.dtype.name)
    gaps = matmul(in_dtype(a, "float64"), solution) - in_dtype(b, "float64")
    return in_dtype(call("sum", gaps * gaps, axis=(gaps.ndim - 2,)), a.dtype.name)
