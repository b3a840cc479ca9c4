"""Tensors with some of their elements written or combined: at indices, masks, slices, diagonals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from weft.eager.axes import axis_of
from weft.eager.dtypes import bool_, dtype, int64
from weft.eager.functions import shape as s
from weft.eager.functions.elementwise import (
    cast,
    clamp,
    div,
    floor_divide,
    where,
)
from weft.eager.functions.gathering import index_select, scatter, scatter_add, scattered
from weft.eager.functions.indexing import as_strided, diag, setitem
from weft.eager.functions.reduction import cumsum, numeric
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import public
from weft.eager.storage import row_major
from weft.eager.views import Diagonal
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

_REDUCTIONS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


@public
def index_put(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """``input`` with ``values`` written to, or added at, tensors of indices (``None``: all)."""
    key = tuple([slice(None) if index is None else index for index in indices])
    return wrap(setitem(input, key, values, "add" if accumulate else "update"))


@public
def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """``input`` with elements written to (or added at) positions of the flattened tensor."""
    x, at = wrap(as_node(input)), wrap(as_node(index))
    if not at.numel():
        return x.clone()
    values = s.reshape(source, at.shape)
    return s.reshape(index_put(s.reshape(x, -1), (at,), values, accumulate), x.shape)


@public
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Tensor:
    """``input`` with slices of ``source`` written to the indices along an axis."""
    x = wrap(as_node(input))
    axis = axis_of(dim, x.ndim)
    at = s.reshape(index, -1)
    if not x.ndim:
        return s.reshape(index_copy(s.reshape(x, 1), 0, at, s.reshape(source, 1)), ())
    return wrap(setitem(x, (*(slice(None),) * axis, at), source))


@public
def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *,
                   include_self: bool = True) -> Tensor:
    """``input`` with elements of ``src`` combined at the index along one axis.

    ``reduce`` is ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. Without
    ``include_self`` the elements of ``input`` that others arrive at do not take part.
    """
    _check_reduction("scatter_reduce", reduce)
    return _combined(wrap(as_node(input)), dim, index, src, reduce, include_self)


@public
def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *,
                 include_self: bool = True) -> Tensor:
    """``scatter_reduce`` of slices of ``source`` at the indices along an axis."""
    _check_reduction("index_reduce", reduce)
    x, given = wrap(as_node(input)), wrap(as_node(source))
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        x, given = s.reshape(x, 1), s.reshape(given, 1)
    sizes = [1] * x.ndim
    sizes[axis] = -1
    at = s.expand(s.reshape(index, tuple(sizes)), given.shape)
    return s.reshape(_combined(x, axis, at, given, reduce, include_self), input.shape)


def _check_reduction(what: str, reduce: str) -> None:
    if reduce not in _REDUCTIONS:
        raise InvalidInputError(f"{what}: unknown reduction", got=repr(reduce),
                                expected=", ".join(_REDUCTIONS))


def _combined(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    if x.dtype is bool_:
        return _combined(wrap(numeric(x)), dim, index, wrap(numeric(src)), reduce,
                         include_self).to(bool_)
    start = x
    if not include_self:
        start = scatter(x, dim, index, value=_identity(reduce, x.dtype))
    found = scattered(start, dim, index, src, _REDUCTIONS[reduce])
    if reduce != "mean":
        return found
    ones = wrap(record("full", (as_node(1, int64),), {"shape": tuple(x.shape)}))
    count = ones if include_self else scatter(ones, dim, index, value=0)
    count = scatter_add(count, dim, index, s.expand(wrap(as_node(1, int64)), index.shape))
    count = clamp(count, min=1)
    return div(found, count) if x.dtype.is_floating_point else floor_divide(found, count)


def _identity(reduce: str, d: dtype) -> Any:
    """The number that a reduction starts from."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    return extreme_of(d, largest=reduce == "amin")


def extreme_of(d: dtype, *, largest: bool) -> Any:
    """The largest or the smallest number of a dtype."""
    if d is bool_:
        return largest
    if d.is_floating_point:
        return math.inf if largest else -math.inf
    limits = ml_dtypes.iinfo(d.dtype)
    return int(limits.max if largest else limits.min)


@public
def masked_scatter(input: Any, mask: Any, source: Any) -> Tensor:
    """``input`` with the elements of ``source``, one after another, where ``mask`` holds."""
    x, given = wrap(as_node(input)), s.reshape(wrap(as_node(source)), -1)
    common = np.broadcast_shapes(tuple(x.shape), tuple(mask.shape))
    x, holds = s.expand(x, common), s.expand(wrap(as_node(mask)), common)
    if holds.dtype is not bool_:
        raise InvalidInputError("masked_scatter: the mask is not boolean", got=repr(holds.dtype),
                                help="compare it: mask != 0")
    if not x.numel() or not given.numel():
        return x.clone()
    if given.dtype is not x.dtype:
        raise InvalidInputError("masked_scatter: the source has another dtype",
                                expected=repr(x.dtype), got=repr(given.dtype))
    line = s.reshape(holds, -1)
    place = where(line, cumsum(line, 0) - 1, 0)
    return where(holds, s.reshape(index_select(given, 0, place), common), x)


@public
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Tensor:
    """``input`` with ``src`` for one slice along an axis."""
    axis = axis_of(dim, input.ndim)
    return wrap(setitem(input, (*(slice(None),) * axis, index), src))


@public
def slice_scatter(input: Any, src: Any, dim: int = 0, start: int | None = None,
                  end: int | None = None, step: int = 1) -> Tensor:
    """``input`` with ``src`` for the slices from ``start`` to ``end`` along an axis."""
    axis = axis_of(dim, input.ndim)
    return wrap(setitem(input, (*(slice(None),) * axis, slice(start, end, step)), src))


@public
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
                     ) -> Tensor:
    """``input`` with ``src`` for the diagonal of the matrices of two axes."""
    node = as_node(input)
    spec, rank = node.sig.out, len(node.sig.out.shape)
    op = Diagonal(offset, axis_of(dim1, rank), axis_of(dim2, rank))
    layout = op.layout(row_major(spec.shape))
    part = cast(as_node(src, spec.dtype), spec.dtype)
    if part.sig.out.shape != layout.shape:
        raise InvalidInputError("diagonal_scatter: the source does not fit the diagonal",
                                expected=f"shape {layout.shape}", got=str(part.sig.out.shape))
    return wrap(op.scatter(node, part, layout))


@public
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices in two new axes, with the last axis of ``input`` on their diagonals."""
    x = wrap(as_node(input))
    rank = x.ndim + 1
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    if a == b:
        raise InvalidInputError("diag_embed needs two different axes", got=f"{dim1}, {dim2}")
    size = x.shape[-1] + abs(offset)
    sizes = list(x.shape[:-1])
    for axis in sorted((a, b)):
        sizes.insert(axis, size)
    zeros = wrap(record("zeros", (), {"shape": tuple(sizes), "dtype": x.dtype.ir}))
    return diagonal_scatter(zeros, x, offset, a, b)


@public
def diagflat(input: Any, offset: int = 0) -> Tensor:
    """The matrix with the elements on its diagonal."""
    return diag(s.reshape(input, -1), offset)


@public
def as_strided_scatter(input: Any, src: Any, size: Any, stride: Any,
                       storage_offset: int | None = None) -> Tensor:
    """``input``, copied, with ``src`` for what ``as_strided`` of it gives."""
    x = wrap(as_node(input)).clone()
    as_strided(x, size, stride, storage_offset).copy_(src)
    return x
