"""Converters that select one element along an axis by rank: median, mode, kthvalue."""

from __future__ import annotations

import math

from weft import op
from weft.frontend.torch.aten.order import sorted_order
from weft.frontend.torch.aten.scan import positions
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr

Pair = tuple[Expr, Expr]


@converts("kthvalue")
def kthvalue(node: Node, x: Expr, k: int, axis: int, keepdims: bool) -> Pair:
    if not rank_of(x):
        return x, node.constant(0, "int64")
    axis = axis_of(axis, rank_of(x))
    order = sorted_order(node, x, axis, descending=False)
    return _picked(node, x, node.slice(order, axis, k - 1, k), axis, keepdims)


@converts("median.dim", "nanmedian.dim")
def median(node: Node, x: Expr, axis: int, keepdims: bool) -> Pair:
    """The lower median; ``median`` gives NaN if there is one, ``nanmedian`` ignores NaN."""
    if not rank_of(x):
        return x, node.constant(0, "int64")
    axis = axis_of(axis, rank_of(x))
    order = sorted_order(node, x, axis, descending=False)
    size = shape_in(x)[axis]
    if not dtype_in(x).is_float:
        half = (size - 1) // 2
        return _picked(node, x, node.slice(order, axis, half, half + 1), axis, keepdims)
    rank = _rank_of_median(node, x, axis, ignores_nan="nanmedian" in node.op)
    return _picked(node, x, node.call(op.gather, order, rank, axis=axis), axis, keepdims)


def _rank_of_median(node: Node, x: Expr, axis: int, *, ignores_nan: bool) -> Expr:
    """The median's position in sorted order, in which NaNs come last."""
    size = shape_in(x)[axis]
    is_number = node.cast(node.call(op.logical_not, node.call(op.isnan, x)), "int64")
    numbers = node.call(op.sum, is_number, axis=(axis,), keepdims=True)
    one, two = node.constant(1, "int64"), node.constant(2, "int64")
    if ignores_nan:
        above = node.call(op.maximum, node.call(op.subtract, numbers, one),
                          node.constant(0, "int64"))
        return node.call(op.floor_divide, above, two)
    complete = node.call(op.equal, numbers, node.tensor(size, "int64"))
    return node.call(op.where, complete, node.tensor((size - 1) // 2, "int64"), numbers)


@converts("median.default", "nanmedian.default")
def median_of_all(node: Node, x: Expr) -> Expr:
    if not math.prod(shape_in(x)):
        return node.constant(math.nan, dtype_in(x)) if dtype_in(x).is_float \
            else node.constant(-(2 ** (dtype_in(x).bits - 1)), dtype_in(x))
    flat = node.reshape(x, (math.prod(shape_in(x)),))
    return median(node, flat, 0, keepdims=False)[0]


@converts("mode")
def mode(node: Node, x: Expr, axis: int, keepdims: bool) -> Pair:
    """The smallest of the most frequent values, and an index of it; NaNs are unequal.

    In sorted order, the length of a run so far is the distance from its start, and the start is
    the largest position so far at which the value changes.
    """
    if not rank_of(x):
        return x, node.constant(0, "int64")
    axis, size = axis_of(axis, rank_of(x)), shape_in(x)[axis_of(axis, rank_of(x))]
    order = sorted_order(node, x, axis, descending=False)
    numeric = node.cast(x, "uint8") if dtype_in(x).is_bool else x
    values = node.call(op.gather, numeric, order, axis=axis)
    rank = positions(node, x, axis)
    before = node.call(op.take, values, node.call(
        op.maximum, node.call(op.subtract, node.reshape(rank, (size,)),
                              node.constant(1, "int64")),
        node.constant(0, "int64")), axis=axis, mode="clip")
    changes = node.call(op.not_equal, values, before)
    start = node.call(op.cummax, node.call(op.where, changes, rank, node.constant(0, "int64")),
                      axis=axis)
    length = node.call(op.subtract, rank, start)
    longest = node.call(op.argmax, length, axis=(axis,), keepdims=True, dtype="int64")
    return _picked(node, x, node.call(op.gather, order, longest, axis=axis), axis, keepdims)


def _picked(node: Node, x: Expr, position: Expr, axis: int, keepdims: bool) -> Pair:
    """The elements at ``position``, which has size 1 along ``axis``."""
    value = node.call(op.gather, x, position, axis=axis)
    if keepdims:
        return value, position
    return (node.call(op.squeeze, value, axis=(axis,)),
            node.call(op.squeeze, position, axis=(axis,)))
