"""Functions of sorted elements: sort, top-k, medians, quantiles, modes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft.eager.axes import axis_of
from weft.eager.cell import Cell
from weft.eager.dtypes import bool_, int64
from weft.eager.functions.elementwise import add, isnan, mul, ne, sub, where
from weft.eager.functions.reduction import (
    Extreme,
    along,
    chosen,
    floating,
    numeric,
    places_along,
)
from weft.eager.functions.shape import cat
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _order(input: Any, dim: int, descending: bool = False) -> Any:
    """The indices that sort along an axis; the sort is stable and puts NaN last."""
    return along("argsort", numeric(input), dim, is_ascend=not descending)


def _at(input: Any, order: Any, dim: int) -> Any:
    """The elements at indices along an axis."""
    node = as_node(input)
    if not node.sig.out.shape:
        return wrap(record("copy", (node,), {}))
    axis = axis_of(dim, len(node.sig.out.shape))
    return wrap(record("gather", (node, as_node(order)), {"axis": axis}))


@public
def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool | None = None  # noqa: ARG001 - always
         ) -> Extreme:
    """The elements along an axis in sorted order, and their indices; the sort is stable."""
    order = _order(input, dim, descending)
    return Extreme(_at(input, order, dim), order)


@public
def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False  # noqa: ARG001 - always
            ) -> Tensor:
    """The indices that sort the elements along an axis."""
    return _order(input, dim, descending)


@public
def msort(input: Any) -> Tensor:
    """The elements sorted along the first axis."""
    return sort(input, 0)[0]


@public
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:  # noqa: ARG001 - always
    """The k largest (or smallest) elements along an axis in order, and their indices."""
    node = numeric(input)
    shape = node.sig.out.shape
    size = shape[axis_of(dim, len(shape))] if shape else 1
    if not 0 <= int(k) <= size:
        raise InvalidInputError("topk: k is out of range", got=str(k), expected=f"0 to {size}")
    if int(k) == 0 or not math.prod(shape):
        order = _order(input, dim, largest)
        order = order.narrow(axis_of(dim, len(shape)), 0, int(k))
        return Extreme(_at(input, order, dim), order)
    values, order = along("topk", node, dim, is_ascend=not largest, k=int(k))
    return Extreme(values.to(bool_) if as_node(input).sig.out.dtype is bool_ else values, order)


@public
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The k-th smallest element along an axis, and its index."""
    shape = as_node(input).sig.out.shape
    axis = axis_of(dim, len(shape))
    size = shape[axis] if shape else 1
    if not 1 <= k <= size:
        raise InvalidInputError("kthvalue: k is out of range", got=str(k), expected=f"1 to {size}")
    order = _order(input, dim)
    return chosen(input, order.narrow(axis, k - 1, 1) if shape else order, dim, keepdim)


@public
def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, NaN if one is; along an axis, values and indices."""
    return _middle(input, dim, keepdim, ignores_nan=False)


@public
def nanmedian(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN; along an axis, values and indices."""
    return _middle(input, dim, keepdim, ignores_nan=True)


def _middle(input: Any, dim: int | None, keepdim: bool, *, ignores_nan: bool) -> Any:
    x = wrap(as_node(input))
    if dim is None:
        flat = x.reshape(-1)
        if not flat.shape[0]:
            return x.sum() * math.nan
        return _shared(flat, _middle(flat, 0, False, ignores_nan=ignores_nan)[0].detach())
    axis = axis_of(dim, x.ndim)
    order = _order(x.detach(), axis)
    if not x.ndim:
        return chosen(x, order, dim, keepdim)
    size = x.shape[axis]
    if x.dtype.is_floating_point:
        missing = isnan(x.detach()).sum(axis, keepdim=True)
        place = (size - missing - 1).clamp(0) // 2 if ignores_nan else where(
            missing > 0, size - missing, (size - 1) // 2)
        indices = wrap(record("gather", (as_node(order), as_node(place)), {"axis": axis}))
    else:
        indices = order.narrow(axis, (size - 1) // 2, 1)
    return chosen(x, indices, axis, keepdim)


def _shared(x: Any, value: Any) -> Any:
    """``value``, whose gradient is shared by the elements of ``x`` that equal it."""
    if not x.requires_grad:
        return value
    same = x.detach().eq(value) | (isnan(x.detach()) & isnan(value))
    share = same.to(x.dtype) / same.sum().to(x.dtype)
    return add(value, where(same, sub(x, x.detach()).nan_to_num(), 0.0).mul(share).sum())


@public
def mode(input: Any, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The most frequent element along an axis, the smallest of several, and its last index."""
    x = wrap(as_node(input))
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return chosen(x, _order(x, axis), axis, keepdim)
    values, order = sort(x.detach(), axis)
    place = places_along(tuple(x.shape), axis)
    size = x.shape[axis]
    is_first = ne(values, cat([values.narrow(axis, 0, 1), values.narrow(axis, 0, size - 1)], axis))
    start = along("cummax", as_node(where(is_first, place, 0)), axis)
    best = (place - start).argmax(axis, keepdim=True)
    return chosen(x, _at(order, best, axis), axis, keepdim)


@public
def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *,
             interpolation: str = "linear") -> Tensor:
    """Quantiles along an axis or of all elements, NaN if one is; those of a vector ``q`` first."""
    return _quantile(input, q, dim, keepdim, interpolation, ignores_nan=False)


@public
def nanquantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *,
                interpolation: str = "linear") -> Tensor:
    """Quantiles of the elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, ignores_nan=True)


_BETWEEN = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(input: Any, q: Any, dim: int | None, keepdim: bool, between: str, *,
              ignores_nan: bool) -> Any:
    if between not in _BETWEEN:
        raise InvalidInputError("unknown interpolation of quantile", got=repr(between),
                                expected=", ".join(_BETWEEN))
    x = wrap(floating(input, None, "quantile"))
    parts: Any = q if isinstance(q, Cell) else wrap(as_node(float(q), x.dtype))
    axis = axis_of(dim, x.ndim) if dim is not None else 0
    rank = x.ndim
    x = x.reshape(-1) if dim is None or not rank else x.movedim(axis, -1)
    ranked, found_nan = sort(x, -1)[0], isnan(x.detach())
    last = (x.shape[-1] - 1 - found_nan.sum(-1, keepdim=True)).clamp(0) if ignores_nan else \
        wrap(as_node(x.shape[-1] - 1)).expand((*x.shape[:-1], 1))
    position = mul(parts.reshape(-1), last.to(x.dtype))
    found = _interpolated(ranked, position, between)
    if not ignores_nan:
        found = where(found_nan.any(-1, keepdim=True), math.nan, found)
    else:
        found = where(found_nan.all(-1, keepdim=True), math.nan, found)
    found = found.movedim(-1, 0)  # the quantiles first
    if keepdim:
        found = found.reshape((found.shape[0], *(1,) * rank)) if dim is None else \
            found.unsqueeze(axis + 1) if rank else found
    return found if parts.ndim else found.squeeze(0)


def _interpolated(ranked: Any, position: Any, between: str) -> Any:
    if between == "nearest":
        position = position.round()
    low = position.floor() if between != "higher" else position.ceil()
    at_low = _at(ranked, low.to(int64), -1)
    if between not in {"linear", "midpoint"}:
        return at_low
    at_high = _at(ranked, position.ceil().to(int64), -1)
    weight = sub(position, low) if between == "linear" else 0.5
    return at_low.lerp(at_high, weight)


@public
def searchsorted(sorted_sequence: Any, values: Any, *, out_int32: bool = False,
                 right: bool = False, side: str | None = None, sorter: Any = None) -> Tensor:
    """Where each value goes in a sorted sequence: before equal elements, or after (``right``)."""
    edges = wrap(as_node(sorted_sequence))
    if side not in {None, "left", "right"} or (side == "left" and right):
        raise InvalidInputError("searchsorted: side does not fit", got=repr(side),
                                expected='"left" or "right", in agreement with right=')
    if sorter is not None:
        edges = edges.gather(-1, sorter)
    given = wrap(as_node(values, edges.dtype))
    common = add(edges.reshape(-1)[:0].sum().to(edges.dtype), mul(given.reshape(-1)[:0].sum().to(
        given.dtype), 1)).dtype if edges.dtype != given.dtype else edges.dtype
    shape = tuple(given.shape)
    given = given.reshape((1,)) if not shape else given
    if edges.ndim == 1 and given.ndim != 1:
        given = given.reshape(-1)
    attrs = {"right": right or side == "right"}
    nodes = (as_node(edges.to(common)), as_node(given.to(common)))
    found = wrap(record("searchsorted", nodes, attrs)).reshape(shape)
    return found.int() if out_int32 else found


@public
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
              ) -> Tensor:
    """The index of the bucket of each element, between sorted boundaries."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
