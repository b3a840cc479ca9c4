"""Converters of operators whose result sizes the data determines, and of numbers from tensors."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.torch.aten.order import sorted_order
from weft.frontend.torch.aten.shape import range_of_sizes
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in, size_of
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr

# Slices are compared element by element, with several kernels per element.
_MOST_COLUMNS = 256
# A number becomes a size by as many comparisons.
_MOST_COUNTED = 1 << 22


def is_set(node: Node, x: Expr) -> Expr:
    """Whether each element is not zero."""
    return x if dtype_in(x).is_bool else node.call(op.not_equal, x, node.scalar_like(0, x))


def true_positions(node: Node, mask: Expr) -> Expr:
    """The positions of the true elements in row-major order, (count,)."""
    flat = node.reshape(mask, (size_of(mask),)) if rank_of(mask) != 1 else mask
    return node.call(op.squeeze, node.positions(flat), axis=(1,))


@converts("nonzero")
def nonzero(node: Node, x: Expr) -> Expr:
    return node.positions(is_set(node, x))


@converts("masked_select")
def masked_select(node: Node, x: Expr, mask: Expr) -> Expr:
    shape = node.broadcast_shape(x, mask)
    flat = node.reshape(node.broadcast(x, shape), (math.prod(shape),))
    at = true_positions(node, node.broadcast(mask, shape))
    return node.call(op.take, flat, at, axis=0, mode="clip")


@converts("unique_consecutive")
def unique_consecutive(node: Node, x: Expr, with_inverse: bool, with_counts: bool,
                       axis: int | None) -> tuple[Expr, Expr, Expr]:
    shape = shape_in(x)
    if axis is None:
        x = node.reshape(x, (size_of(x),))
    runs, inverse, counts = _runs(node, x, axis_of(axis or 0, rank_of(x)))
    if axis is None:
        inverse = node.reshape(inverse, shape)
    return runs, _unless(node, inverse, with_inverse), _unless(node, counts, with_counts)


@converts("_unique2", "unique_dim")
def unique(node: Node, x: Expr, *options: Any) -> tuple[Expr, Expr, Expr]:
    """Sorted always; ``options`` are (axis,) sorted, return_inverse, return_counts."""
    axis = options[0] if "unique_dim" in node.op else None
    with_inverse, with_counts = options[-2:]
    shape = shape_in(x)
    x = node.reshape(x, (size_of(x),)) if axis is None else x
    place = axis_of(axis or 0, rank_of(x))
    order = _order_of_slices(node, x, place)
    runs, number, counts = _runs(node, node.call(op.take, x, order, axis=place, mode="clip"),
                                 place)
    zeros = node.call(op.zeros, shape=shape_in(order), dtype="int64")
    inverse = node.call(op.scatter_elements, zeros, order, number, axis=0, reduction="update")
    if axis is None:
        inverse = node.reshape(inverse, shape)
    return runs, _unless(node, inverse, with_inverse), _unless(node, counts, with_counts)


@converts("_unique")
def unique_of_two(node: Node, x: Expr, is_sorted: bool, with_inverse: bool) -> tuple[Expr, Expr]:
    return unique(node, x, is_sorted, with_inverse, False)[:2]


def _unless(node: Node, value: Expr, is_wanted: bool) -> Expr:
    return value if is_wanted else node.call(op.zeros, shape=(0,), dtype="int64")


def _order_of_slices(node: Node, x: Expr, axis: int) -> Expr:
    """The lexicographic order of the slices along ``axis``, by stable sorts from the last key."""
    columns = _columns(node, x, axis)
    order = None
    for column in reversed(columns):
        keys = column if order is None else node.call(op.take, column, order, axis=0, mode="clip")
        found = sorted_order(node, keys, 0, descending=False)
        order = found if order is None else node.call(op.take, order, found, axis=0, mode="clip")
    return range_of_sizes(node, shape_in(x)[axis]) if order is None else order


def _columns(node: Node, x: Expr, axis: int) -> list[Expr]:
    """The elements of the slices along ``axis``: for each position, a vector of all slices."""
    shape = shape_in(x)
    count = math.prod(size for other, size in enumerate(shape) if other != axis)
    if not isinstance(count, int) or count > _MOST_COLUMNS:
        raise node.unsupported("slices are compared element by element", got=str(count),
                               expected=f"at most {_MOST_COLUMNS} elements in each")
    if rank_of(x) == 1:
        return [x]
    order = (*(a for a in range(rank_of(x)) if a != axis), axis)
    rows = node.reshape(node.transpose(x, order), (count, shape[axis]))
    return [node.call(op.squeeze, node.slice(rows, 0, i, i + 1), axis=(0,)) for i in range(count)]


def _runs(node: Node, x: Expr, axis: int) -> tuple[Expr, Expr, Expr]:
    """The first slice of each run of equal ones, the run of each slice, and their lengths.

    NaN differs from NaN, as in torch.
    """
    size = shape_in(x)[axis]
    line = range_of_sizes(node, size)
    before = node.call(op.maximum, node.call(op.subtract, line, node.constant(1, "int64")),
                       node.constant(0, "int64"))
    starts = node.call(op.equal, line, node.constant(0, "int64"))
    for column in _columns(node, x, axis):
        previous = node.call(op.take, column, before, axis=0, mode="clip")
        starts = node.call(op.logical_or, starts, node.call(op.not_equal, column, previous))
    at = true_positions(node, starts)
    number = node.call(op.subtract, node.call(op.cumsum, node.cast(starts, "int64"), axis=0),
                       node.constant(1, "int64"))
    zeros = node.call(op.zeros, shape=shape_in(at), dtype="int64")
    ones = node.call(op.ones, shape=(size,), dtype="int64")
    counts = node.call(op.scatter_elements, zeros, number, ones, axis=0, reduction="add")
    return node.call(op.take, x, at, axis=axis, mode="clip"), number, counts


@converts("bincount")
def bincount(node: Node, x: Expr, weights: Expr | None, at_least: int) -> Expr:
    """As long as the largest number needs, which has no bound: a size of run time alone."""
    least = node.constant([at_least], "int64")
    numbers = node.cast(x, "int64")
    if shape_in(x) != (0,):
        longest = node.call(op.add, node.call(op.max, numbers, axis=(0,), keepdims=True),
                            node.constant(1, "int64"))
        least = node.call(op.maximum, longest, least)
    zeros = node.unbounded(node.call(op.dyn.zeros, least, dtype=node.dtype()))
    added = node.call(op.ones, shape=shape_in(x), dtype=node.dtype()) if weights is None \
        else node.cast(weights, node.dtype())
    return node.call(op.scatter_elements, zeros, numbers, added, axis=0, reduction="add")


@converts("repeat_interleave.self_Tensor")
def repeat_interleave(node: Node, x: Expr, repeats: Expr, axis: int | None,
                      count: int | None) -> Expr:
    """Repeat each slice ``repeats[i]`` times; the result has ``count`` slices."""
    if axis is None:
        x, axis = node.reshape(x, (size_of(x),)), 0
    axis = axis_of(axis, rank_of(x))
    size = shape_in(x)[axis]
    if shape_in(repeats) != (size,):
        repeats = node.broadcast(repeats, (size,))
    return node.call(op.take, x, _repeated(node, repeats, count), axis=axis, mode="clip")


@converts("repeat_interleave.Tensor")
def repeated_places(node: Node, repeats: Expr, count: int | None) -> Expr:
    return node.cast(_repeated(node, repeats, count), dtype_in(repeats))


def _repeated(node: Node, repeats: Expr, count: int | None) -> Expr:
    """The number of the slice that each slice of the result repeats."""
    ends = node.call(op.cumsum, node.cast(repeats, "int64"), axis=0)
    if count is None:
        total = node.call(op.sum, node.cast(repeats, "int64"))
        zero, one = node.constant(0, "int64"), node.constant(1, "int64")
        numbers = node.unbounded(node.call(op.dyn.arange, zero, total, one, dtype="int64"))
    else:
        numbers = range_of_sizes(node, count)
    return node.call(op.searchsorted, ends, numbers, right=True, dtype="int64")


@converts("_local_scalar_dense", "item")
def item(node: Node, x: Expr) -> Any:
    """A tensor's number: a size where torch knows a bound for it, else a tensor of rank 0."""
    number = node.reshape(x, ())
    limit = node.limit
    if not dtype_in(x).is_int or limit is None or limit > _MOST_COUNTED:
        return number
    line = range_of_sizes(node, limit)
    below = node.call(op.less, line, node.cast(number, "int64"))
    return shape_in(node.positions(below))[0]
