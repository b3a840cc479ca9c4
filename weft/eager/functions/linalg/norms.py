"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.axes import axes_of
from weft.eager.dtypes import as_dtype
from weft.eager.emitter import TENSORS, call
from weft.eager.functions.linalg.matrices import floats, in_dtype, matrices
from weft.eager.functions.linalg.solving import inv_ex
from weft.eager.functions.linalg.spectral import svdvals
from weft.eager.signature import public
from weft.op.composites import norms
from weft.support.errors import InvalidInputError


def _in(x: Any, dtype: Any, what: str) -> Any:
    found = floats(x, what, complex_too=True)
    found = found if dtype is None else in_dtype(found, as_dtype(dtype).name)
    return abs(found) if found.dtype.is_complex and what != "matrix_norm" else found


@public
def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *,
                dtype: Any = None) -> Any:
    """``sum(abs(x)**ord)**(1 / ord)`` along axes, by default of all elements.

    Infinite ``ord`` gives the largest or the smallest magnitude, 0 the number of nonzeros.
    """
    value = _in(x, dtype, "vector_norm")
    order = float(ord)
    axes = axes_of(dim, value.ndim) if value.ndim else None
    if not value.ndim:
        return norms.p_norm(TENSORS, value.reshape((1,)), order, (0,)).reshape(())
    _not_empty(value, axes, order, "vector_norm")
    return norms.p_norm(TENSORS, value, order, axes, bool(keepdim))


def _not_empty(x: Any, axes: tuple[int, ...] | None, order: float, what: str) -> None:
    sizes = x.shape if axes is None else [x.shape[a] for a in axes]
    if 0 in sizes and (math.isinf(order) or order < 0):
        raise InvalidInputError(f"{what} of order {order} over no elements",
                                got=f"shape {tuple(x.shape)}")


@public
def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *,
                dtype: Any = None) -> Any:
    """A norm of the matrices of two axes.

    ``ord``: "fro" (root of the sum of squares), "nuc" (sum of the singular values), inf or -inf
    (largest or smallest sum of magnitudes of a row), 1 or -1 (of a column), 2 or -2 (largest or
    smallest singular value).
    """
    x = _in(matrices(A, "matrix_norm", complex_too=True), dtype, "matrix_norm")
    rows, columns = _two(dim, x.ndim)
    if ord == "fro":
        x = abs(x) if x.dtype.is_complex else x
        return norms.p_norm(TENSORS, x, 2.0, (rows, columns), bool(keepdim))
    if ord == "nuc" or (ord not in ("fro", "nuc") and abs(ord) == 2):
        return _of_singular_values(x, ord, rows, columns, keepdim)
    if not isinstance(ord, str) and abs(ord) in (1, math.inf):
        inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
        if not x.shape[outer]:
            raise InvalidInputError(f"matrix_norm of order {ord} over no elements",
                                    got=f"shape {tuple(x.shape)}")
        sums = call("sum", call("abs", x), axis=(inner,), keepdims=True)
        found = call("max" if ord > 0 else "min", sums, axis=(outer,), keepdims=True)
        return found if keepdim else call("squeeze", found, axis=tuple(sorted((rows, columns))))
    raise InvalidInputError("matrix_norm: unknown order", got=repr(ord),
                            expected="fro, nuc, inf, -inf, 1, -1, 2 or -2")


def _two(dim: Any, rank: int) -> tuple[int, int]:
    found = axes_of(dim, rank) or ()
    if len(found) != 2 or found[0] == found[1]:
        raise InvalidInputError("matrix_norm takes two different axes", got=repr(dim))
    return found[0], found[1]


def _of_singular_values(x: Any, ord: Any, rows: int, columns: int, keepdim: bool) -> Any:
    rest = [a for a in range(x.ndim) if a not in (rows, columns)]
    values = svdvals(x.permute((*rest, rows, columns)))
    if ord == "nuc":
        found = call("sum", values, axis=(values.ndim - 1,))
    elif not values.shape[-1]:
        raise InvalidInputError(f"matrix_norm of order {ord} over no elements",
                                got=f"shape {tuple(x.shape)}")
    else:
        found = call("max" if ord > 0 else "min", values, axis=(values.ndim - 1,))
    if not keepdim:
        return found
    return found.reshape(tuple(1 if a in (rows, columns) else s for a, s in enumerate(x.shape)))


@public
def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *,
         dtype: Any = None) -> Any:
    """``vector_norm`` along one axis or of all elements, ``matrix_norm`` along two.

    With ``ord`` and without ``dim``, ``A`` is a vector or a matrix.
    """
    x = floats(A, "norm", complex_too=True)
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    axes = tuple(range(x.ndim)) if dim is None else axes_of(dim, x.ndim) or ()
    if len(axes) > 2 or (dim is None and not axes):
        raise InvalidInputError("norm: an order is that of a vector or a matrix",
                                got=f"{len(axes)} axes")
    if len(axes) == 2:
        return matrix_norm(x, ord, axes if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise InvalidInputError("norm: this order is one of matrices", got=repr(ord))
    return vector_norm(x, ord, axes, keepdim, dtype=dtype)


@public
def cond(A: Any, p: Any = None) -> Any:
    """The condition number: the norm of matrices times that of their inverses.

    ``None`` and 2 divide the largest by the smallest singular value, -2 the other way round; other
    orders are those of ``matrix_norm``. Singular matrices have an infinite one.
    """
    x = matrices(A, "cond", complex_too=True)
    if p is None or p in (2, -2):
        values = svdvals(x)
        if not values.shape[-1]:
            return call("zeros", shape=tuple(x.shape[:-2]), dtype=x.dtype.name)
        largest, smallest = values[..., 0], values[..., -1]
        return largest / smallest if p != -2 else smallest / largest
    found, info = inv_ex(x)
    product = matrix_norm(x, p) * matrix_norm(found, p)
    return call("where", call("equal", info, 0), product, math.inf)
