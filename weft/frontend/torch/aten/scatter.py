"""Converters of scatters: write, add or reduce at index tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.aten.index import counted_from_start, placed_where
from weft.frontend.torch.node import (
    Node,
    axis_of,
    broadcast_shape,
    dtype_in,
    rank_of,
    shape_in,
    size_of,
)
from weft.frontend.torch.registry import converts
from weft.ir import Constant, DType, Expr

_REDUCTIONS = {"sum": "add", "prod": "mul", "amin": "min", "amax": "max", "mean": "add",
               "add": "add", "multiply": "mul"}


@converts("scatter.src", "scatter_add")
def scatter(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr) -> Expr:
    reduction = "add" if node.op.startswith("aten.scatter_add") else "update"
    return _scattered(node, x, axis, indices, updates, reduction)


@converts("scatter.value")
def scatter_value(node: Node, x: Expr, axis: int, indices: Expr, value: float) -> Expr:
    updates = node.broadcast(node.tensor(value, dtype_in(x)), shape_in(indices))
    return _scattered(node, x, axis, indices, updates, "update")


@converts("scatter.reduce")
def scatter_combining(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr, kind: str
                      ) -> Expr:
    return _scattered(node, x, axis, indices, updates, _REDUCTIONS[kind])


@converts("scatter.value_reduce")
def scatter_value_combining(node: Node, x: Expr, axis: int, indices: Expr, value: float,
                            kind: str) -> Expr:
    updates = node.broadcast(node.tensor(value, dtype_in(x)), shape_in(indices))
    return _scattered(node, x, axis, indices, updates, _REDUCTIONS[kind])


@converts("scatter_reduce.two")
def scatter_reduce(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr, kind: str,
                   include_self: bool) -> Expr:
    return _reduced_into(node, x, axis, indices, updates, kind, include_self)


@converts("index_reduce")
def index_reduce(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr, kind: str,
                 include_self: bool) -> Expr:
    """Like ``scatter_reduce``, with one index for each slice."""
    if not rank_of(x):
        updates = node.reshape(updates, ())
        indices = node.reshape(indices, ())
        return _reduced_into(node, x, axis, indices, updates, kind, include_self)
    axis, rank = axis_of(axis, rank_of(x)), rank_of(x)
    line = [1] * rank
    line[axis] = size_of(indices)
    wide = node.broadcast(node.reshape(indices, line), shape_in(updates))
    return _reduced_into(node, x, axis, wide, updates, kind, include_self)


def _reduced_into(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr, kind: str,
                  include_self: bool) -> Expr:
    """Reduce into ``x``; without ``include_self`` the written elements start from the identity."""
    dtype = dtype_in(x)
    if not include_self:
        neutral = node.broadcast(node.constant(_neutral(kind, dtype), dtype), shape_in(indices))
        start = _scattered(node, x, axis, indices, neutral, "update")
    else:
        start = x
    total = _scattered(node, start, axis, indices, updates, _REDUCTIONS[kind])
    return total if kind != "mean" else _mean(node, x, total, axis, indices, include_self)


def _mean(node: Node, x: Expr, total: Expr, axis: int, indices: Expr, include_self: bool
          ) -> Expr:
    """The sums divided by the number of addends; integers round down."""
    counts = Constant(arrays.full(shape_in(x), int(include_self), np.int64), span=node.span)
    ones = Constant(arrays.ones(shape_in(indices), np.int64), span=node.span)
    counts = _scattered(node, counts, axis, indices, ones, "add")
    counts = node.call(op.maximum, counts, node.constant(1, "int64"))
    divide = op.divide if dtype_in(x).is_float else op.floor_divide
    return node.call(divide, total, node.cast(counts, dtype_in(x)))


def _neutral(kind: str, dtype: DType) -> Any:
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    if dtype.is_float:
        return np.inf if kind == "amin" else -np.inf
    if dtype.is_bool:
        return kind == "amin"
    limits = np.iinfo(dtype.numpy)
    return limits.max if kind == "amin" else limits.min


def _scattered(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr,
               reduction: str) -> Expr:
    """Scatter along ``axis``; a scalar counts as rank 1, as in torch."""
    dtype, shape = dtype_in(x), shape_in(x)
    if not size_of(indices) or not size_of(x):
        return x
    if dtype.is_bool and reduction != "update":
        # The sum of booleans is "or", the product is "and".
        of_bools = {"add": "max", "mul": "min"}.get(reduction, reduction)
        wide = _scattered(node, node.cast(x, "uint8"), axis, indices,
                          node.cast(updates, "uint8"), of_bools)
        return node.cast(wide, "bool")
    rank = max(len(shape), 1)
    x, indices, updates = (_with_axes(node, t, rank) for t in (x, indices, updates))
    # torch ignores updates beyond the shape of the indices.
    for a, size in enumerate(shape_in(indices)):
        updates = node.slice(updates, a, 0, size)
    made = node.call(op.scatter_elements, x, indices, updates, axis=axis_of(axis, rank),
                     reduction=reduction)
    return node.reshape(made, shape)


def _with_axes(node: Node, x: Expr, rank: int) -> Expr:
    return x if rank_of(x) == rank else node.reshape(x, (*(1,) * (rank - rank_of(x)), *shape_in(x)))


@converts("put")
def put(node: Node, x: Expr, indices: Expr, values: Expr, accumulate: bool) -> Expr:
    """Write values at flat row-major positions."""
    flat = node.reshape(x, (size_of(x),))
    positions = counted_from_start(node, node.reshape(indices, (size_of(indices),)), size_of(x))
    values = node.reshape(node.cast(values, dtype_in(x)), (size_of(indices),))
    made = _scattered(node, flat, 0, positions, values, "add" if accumulate else "update")
    return node.reshape(made, shape_in(x))


@converts("take")
def take(node: Node, x: Expr, indices: Expr) -> Expr:
    positions = counted_from_start(node, indices, size_of(x))
    if not size_of(x):
        return node.broadcast(node.scalar_like(0, x), shape_in(indices))
    return node.call(op.take, node.reshape(x, (size_of(x),)), positions, axis=0, mode="clip")


@converts("masked_scatter")
def masked_scatter(node: Node, x: Expr, mask: Expr, values: Expr) -> Expr:
    """Write the values in order where the mask is true."""
    shape = tuple(broadcast_shape(shape_in(x), shape_in(mask)))
    x, mask = node.broadcast(x, shape), node.broadcast(mask, shape)
    return placed_where(node, x, mask, values, accumulate=False)


@converts("segment_reduce")
def segment_reduce(node: Node, x: Expr, kind: str, lengths: Expr | None, _indices: Any,
                   offsets: Expr | None, axis: int, _unsafe: bool, initial: float | None) -> Expr:
    """Reduce each segment of an axis; ``lengths`` or ``offsets`` define the segments."""
    kind = {"min": "amin", "max": "amax"}.get(kind, kind)
    axis = axis_of(axis, rank_of(x))
    ends = _segment_ends(node, lengths, offsets, axis)
    shape, count = shape_in(x), shape_in(ends)[-1]
    steps = Constant(arrays.arange(shape[axis], dtype=np.int64), span=node.span)
    positions = node.call(op.searchsorted, ends, node.broadcast(steps, shape[: axis + 1]),
                       right=True, dtype="int64")
    thin = (*shape[: axis + 1], *(1,) * (rank_of(x) - axis - 1))
    wide = node.broadcast(node.reshape(positions, thin), shape)
    made = (*shape[:axis], count, *shape[axis + 1 :])
    start = node.broadcast(node.constant(
        _neutral(kind, dtype_in(x)) if initial is None else initial, dtype_in(x)), made)
    total = _scattered(node, start, axis, wide, x, _REDUCTIONS[kind])
    return total if kind != "mean" else _segment_mean(node, total, ends, axis, initial)


def _segment_ends(node: Node, lengths: Expr | None, offsets: Expr | None, axis: int) -> Expr:
    if lengths is not None:
        return node.call(op.cumsum, node.cast(lengths, "int64"), axis=axis)
    if offsets is None:
        raise node.unsupported("neither lengths nor offsets")
    return node.slice(node.cast(offsets, "int64"), axis, 1, shape_in(offsets)[axis])


def _segment_mean(node: Node, total: Expr, ends: Expr, axis: int, initial: float | None) -> Expr:
    """The sums divided by the lengths; an empty segment gives ``initial``, or NaN without it."""
    count = shape_in(ends)[axis]
    starts = node.slice(ends, axis, 0, count - 1)
    first = node.broadcast(node.constant(0, "int64"), (*shape_in(ends)[:axis], 1))
    starts = node.tuple_call(op.concatenate, (first, starts), axis=axis) if count > 1 else first
    lengths = node.call(op.subtract, ends, starts)
    rest = rank_of(total) - axis - 1
    lengths = node.cast(node.reshape(lengths, (*shape_in(ends), *(1,) * rest)), dtype_in(total))
    mean = node.call(op.divide, total, lengths)
    if initial is None:
        return mean
    is_empty = node.call(op.equal, lengths, node.scalar_like(0, total))
    return node.call(op.where, is_empty, total, mean)


@converts("masked_scatter_backward")
def masked_scatter_backward(node: Node, dy: Expr, mask: Expr, shape: list[int]) -> Expr:
    """The gradient of the values: ``dy`` where the mask is true, in order, then zeros."""
    count = int(np.prod(shape))
    common = tuple(broadcast_shape(shape_in(dy), shape_in(mask)))
    size = int(np.prod(common))
    flat = node.reshape(node.broadcast(mask, common), (size,))
    rank = node.call(op.subtract, node.call(op.cumsum, node.cast(flat, "int64"), axis=0),
                     node.constant(1, "int64"))
    # Indices beyond the end are not written.
    positions = node.call(op.where, flat, rank, node.constant(count, "int64"))
    zeros = node.broadcast(node.scalar_like(0, dy), (count,))
    values = node.reshape(node.broadcast(dy, common), (size,))
    made = _scattered(node, zeros, 0, positions, values, "update")
    return node.reshape(made, shape)
