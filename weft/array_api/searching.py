"""Searching, sorting and sets."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.array_api.data_types import promoted
from weft.array_api.statistics import sum as total
from weft.eager.emitter import call
from weft.eager.functions import gathering, indexing, reduction
from weft.eager.functions.creation import arange, tensor
from weft.eager.functions.shape import cat
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element, the first of several."""
    return _extreme("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element, the first of several."""
    return _extreme("argmin", x, axis, keepdims)


def _extreme(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    found = getattr(reduction, name)(x, axis, keepdims)
    return found.reshape((1,) * x.ndim) if axis is None and keepdims else found


def count_nonzero(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Tensor:
    """How many elements are not zero."""
    return total(x.to("bool"), axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, an array for each axis."""
    if x.ndim == 0:
        raise InvalidInputError("nonzero takes an array with axes")
    return tuple(indexing.nonzero(x, as_tuple=True))


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of ``x1`` where the condition holds, of ``x2`` elsewhere."""
    return call("where", condition, *promoted(x1, x2))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """The positions at which elements of ``x2`` keep the order of ``x1``, or of ``x1[sorter]``."""
    if side not in ("left", "right"):
        raise InvalidInputError("searchsorted: unknown side", expected="left or right",
                                got=repr(side))
    a, b = promoted(x1, x2)
    if sorter is not None:
        a = gathering.index_select(a, 0, sorter)
    flat = call("searchsorted", a, b.reshape(-1), right=side == "right", dtype="int64")
    return flat.reshape(tuple(b.shape))


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort along an axis; equal elements keep their order."""
    if not descending:
        return _order(x, axis)
    # The reverse of an ascending sort of the reversed array keeps equal elements in order.
    size = x.shape[axis]
    order = _order(x.flip(axis), axis).flip(axis)
    return (size - 1) - order


def sort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The elements in order along an axis."""
    return call("sort", x, axis=axis, is_ascend=not descending)


def _order(x: Tensor, axis: int) -> Tensor:
    return call("argsort", x, axis=axis, dtype="int64")


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Parts along an axis."""
    if axis is None:
        if x.ndim != 1:
            raise InvalidInputError("take needs an axis", got=tuple(x.shape))
        axis = 0
    return gathering.index_select(x, axis, _from_start(indices, x.shape[axis]))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each line along an axis, the elements at its own indices."""
    return gathering.take_along_dim(x, indices.to("int64"), axis)


def _from_start(indices: Tensor, size: int) -> Tensor:
    """Indices of which the negative ones counted from the end."""
    indices = indices.to("int64")
    return call("where", indices < 0, indices + size, indices)


class UniqueAll(NamedTuple):
    """What ``unique_all`` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` returns."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements in order, where each is first, where all went, and their counts.

    Every NaN is an element of its own.
    """
    flat = x.reshape(-1)
    count = flat.numel()
    if count == 0:
        nothing = arange(0)
        return UniqueAll(flat, nothing, nothing.reshape(tuple(x.shape)), nothing)
    order = _order(flat, 0)
    ordered = gathering.index_select(flat, 0, order)
    is_new = cat([tensor([True]), call("not_equal", ordered[1:], ordered[:-1])])
    starts = indexing.nonzero(is_new).reshape(-1)
    ends = cat([starts[1:], tensor([count])])
    inverse = call("cumsum", is_new.to("int64"), axis=0) - 1
    places = _order(order, 0)
    return UniqueAll(gathering.index_select(ordered, 0, starts),
                     gathering.index_select(order, 0, starts),
                     gathering.index_select(inverse, 0, places).reshape(tuple(x.shape)),
                     ends - starts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements in order and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements in order and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements in order."""
    return unique_all(x).values
