"""Converters of reads and writes at index tensors, with NumPy's semantics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
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
from weft.ir.expr import Constant, Expr


def counted_from_start(node: Node, indices: Expr, size: int) -> Expr:
    """Add ``size`` to negative indices, which count from the end of an axis."""
    if isinstance(indices, Constant) and not (indices.data < 0).any():
        return indices
    moved = node.call(op.add, indices, node.scalar_like(size, indices))
    below = node.call(op.less, indices, node.scalar_like(0, indices))
    return node.call(op.where, below, moved, indices)


@converts("embedding")
def embedding(node: Node, weight: Expr, indices: Expr, *_options: Any) -> Expr:
    return node.call(op.take, weight, indices, axis=0, mode="clip")


@converts("embedding_renorm")
def embedding_renorm(node: Node, weight: Expr, indices: Expr, limit: float, order: float) -> Expr:
    """Scale the rows that are looked up to a norm of at most ``limit``."""
    rows, flat = shape_in(weight)[0], node.reshape(indices, (size_of(indices),))
    length = row_norm(node, weight, order)
    scale = node.call(op.divide, node.scalar_like(limit, weight),
                      node.call(op.add, length, node.scalar_like(1e-7, weight)))
    looked_up = node.call(
        op.scatter_elements, Constant(arrays.zeros(rows, bool), span=node.span), flat,
        Constant(arrays.ones(size_of(indices), bool), span=node.span), axis=0, reduction="update")
    is_long = node.call(op.greater, length, node.scalar_like(limit, weight))
    shortened = node.call(op.logical_and, node.reshape(looked_up, (rows, 1)), is_long)
    return node.call(op.where, shortened, node.call(op.multiply, weight, scale), weight)


def row_norm(node: Node, x: Expr, order: float) -> Expr:
    """The ``order``-norm of each row, (rows, 1)."""
    size = node.call(op.abs, x)
    if math.isinf(order):
        return node.call(op.max, size, axis=(1,), keepdims=True)
    if order == 2:
        total = node.call(op.sum, node.call(op.multiply, x, x), axis=(1,), keepdims=True)
        return node.call(op.sqrt, total)
    powers = node.call(op.power, size, node.scalar_like(order, x))
    total = node.call(op.sum, powers, axis=(1,), keepdims=True)
    return node.call(op.power, total, node.scalar_like(1 / order, x))


@converts("index_select", "index_select_copy")
def index_select(node: Node, x: Expr, axis: int, indices: Expr) -> Expr:
    if not rank_of(x):
        return x
    line = node.reshape(indices, (size_of(indices),))
    return node.call(op.take, x, line, axis=axis_of(axis, rank_of(x)), mode="clip")


@converts("gather")
def gather(node: Node, x: Expr, axis: int, indices: Expr, *_options: Any) -> Expr:
    """Gather along ``axis``; a scalar counts as rank 1."""
    shape = shape_in(indices)
    rank = max(rank_of(x), rank_of(indices))
    if not rank:
        return x
    if not size_of(indices) or not size_of(x):
        return node.broadcast(node.scalar_like(0, x), shape)
    if rank_of(x) != rank or rank_of(indices) != rank:
        x, indices = (t if rank_of(t) == rank else node.reshape(t, (1,) * rank)
                      for t in (x, indices))
    return node.reshape(node.call(op.gather, x, indices, axis=axis_of(axis, rank)), shape)


@converts("index")
def index(node: Node, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """NumPy's advanced indexing by integers.

    The indexed axes are merged into one axis, which is read at row-major positions. The result
    axes replace the indexed axes if these are adjacent; otherwise they come first.
    """
    indices = without_masks(node, indices)
    axes = [a for a, i in enumerate(indices) if i is not None]
    if not axes:
        return x
    positions = _positions(node, x, indices, axes)
    rest = [a for a in range(rank_of(x)) if a not in axes]
    shape = shape_in(x)
    are_neighbours = axes == list(range(axes[0], axes[-1] + 1))
    before = [a for a in rest if a < axes[0]] if are_neighbours else []
    after = [a for a in rest if a not in before]
    x = node.transpose(x, (*before, *axes, *after))
    count = math.prod(shape[a] for a in axes)
    x = node.reshape(x, (*(shape[a] for a in before), count, *(shape[a] for a in after)))
    return node.call(op.take, x, positions, axis=len(before), mode="clip")


def without_masks(node: Node, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """The indices with the positions of true elements, by axis, for each mask."""
    found: list[Expr | None] = []
    for one in indices:
        if one is None or not dtype_in(one).is_bool:
            found.append(one)
            continue
        rows = node.positions(one)
        columns = (node.slice(rows, 1, axis, axis + 1) for axis in range(rank_of(one)))
        found += (node.call(op.squeeze, column, axis=(1,)) for column in columns)
    return found


def _positions(node: Node, x: Expr, indices: Sequence[Expr | None], axes: Sequence[int]) -> Expr:
    """Row-major positions in the merged indexed axes."""
    total: list[Expr] = []
    stride = 1
    for axis in reversed(axes):
        one = _integers(node, indices[axis])
        one = counted_from_start(node, one, shape_in(x)[axis])
        total.append(one if stride == 1
                     else node.call(op.multiply, one, node.scalar_like(stride, one)))
        stride *= shape_in(x)[axis]
    return reduce(lambda a, b: node.call(op.add, a, b), total)


def _integers(node: Node, indices: Expr | None) -> Expr:
    if indices is None:
        raise node.unsupported("a missing index")
    return node.cast(indices, "int64")


@converts("index_put", "_unsafe_index_put")
def index_put(node: Node, x: Expr, indices: Sequence[Expr | None], values: Expr,
              accumulate: bool = False, *_options: Any) -> Expr:
    """``x`` with elements replaced or added to; a single boolean mask becomes a ``where``.

    The indexed axes are moved to the front for the write, and moved back afterwards.
    """
    values = node.cast(values, dtype_in(x))
    if dtype_in(x).is_bool and accumulate:
        wide = index_put(node, node.cast(x, "int32"), indices, values, accumulate=True)
        return node.cast(wide, "bool")
    first = indices[0] if indices else None
    if len(indices) == 1 and first is not None and dtype_in(first).is_bool:
        return _put_where(node, x, first, values, accumulate)
    indices = without_masks(node, indices)
    axes = [a for a, i in enumerate(indices) if i is not None]
    parts = [counted_from_start(node, _integers(node, indices[a]), shape_in(x)[a]) for a in axes]
    common = tuple(broadcast_shape(*map(shape_in, parts)))
    if not math.prod(common) or not size_of(x):
        return x
    stacked = [node.call(op.expand_dims, node.broadcast(p, common), axis=0, num_newaxis=1)
               for p in parts]
    tuples = stacked[0] if len(stacked) == 1 else node.tuple_call(op.concatenate, stacked, axis=0)
    order = (*axes, *(a for a in range(rank_of(x)) if a not in axes))
    updates = _updates(node, x, axes, common, values)
    made = node.call(op.scatter_nd, node.transpose(x, order), tuples, updates,
                     mode="add" if accumulate else "update")
    return node.transpose(made, tuple(np.argsort(order).tolist()))


def _updates(node: Node, x: Expr, axes: Sequence[int], common: tuple[int, ...], values: Expr
             ) -> Expr:
    """The values in the shape of the indexing result, with the index axes moved to the front.

    In that shape the index axes replace the indexed axes if these are adjacent.
    """
    rest = [a for a in range(rank_of(x)) if a not in axes]
    are_neighbours = list(axes) == list(range(axes[0], axes[-1] + 1))
    before = [a for a in rest if a < axes[0]] if are_neighbours else []
    after = [a for a in rest if a not in before]
    shape = shape_in(x)
    full = (*(shape[a] for a in before), *common, *(shape[a] for a in after))
    middle = range(len(before), len(before) + len(common))
    order = (*middle, *(a for a in range(len(full)) if a not in middle))
    return node.transpose(node.broadcast(values, full), order)


def _put_where(node: Node, x: Expr, mask: Expr, values: Expr, accumulate: bool) -> Expr:
    """Write where ``mask`` is true: one value everywhere, or one value per position, in order."""
    rest = shape_in(x)[rank_of(mask):]
    if rank_of(values) > len(rest) and shape_in(values)[-len(rest) - 1] != 1:
        values = node.broadcast(values, (shape_in(values)[-len(rest) - 1], *rest))
        return placed_where(node, x, mask, values, accumulate=accumulate)
    value = node.reshape(values, shape_in(values)[max(rank_of(values) - len(rest), 0):])
    new = node.call(op.add, x, value) if accumulate else value
    mask = node.reshape(mask, (*shape_in(mask), *(1,) * len(rest)))
    return node.call(op.where, mask, new, x)


def placed_where(node: Node, x: Expr, mask: Expr, values: Expr, *, accumulate: bool) -> Expr:
    """``x`` with the i-th of the values at the i-th true element of ``mask``.

    ``mask`` covers the leading axes of ``x``; each value is then a slice.
    """
    count, rest = size_of(mask), shape_in(x)[rank_of(mask):]
    if not size_of(x) or not size_of(values):
        return x
    hits = node.call(op.cumsum, node.reshape(node.cast(mask, "int64"), (count,)), axis=0)
    number = node.call(op.subtract, hits, node.constant(1, "int64"))
    rows = node.reshape(values, (size_of(values) // math.prod(rest), *rest))
    scattered = node.reshape(node.call(op.take, rows, number, axis=0, mode="clip"), shape_in(x))
    scattered = node.call(op.add, x, scattered) if accumulate else scattered
    mask = node.reshape(mask, (*shape_in(mask), *(1,) * len(rest)))
    return node.call(op.where, mask, scattered, x)


@converts("index_copy")
def index_copy(node: Node, x: Expr, axis: int, indices: Expr, values: Expr) -> Expr:
    return _along_axis(node, x, axis, indices, values, accumulate=False)


@converts("index_add")
def index_add(node: Node, x: Expr, axis: int, indices: Expr, values: Expr, alpha: float) -> Expr:
    if alpha != 1 and dtype_in(values).is_bool:
        values = node.call(op.logical_and, values, node.constant(bool(alpha), "bool"))
    elif alpha != 1:
        values = node.call(op.multiply, values, node.scalar_like(alpha, values))
    return _along_axis(node, x, axis, indices, values, accumulate=True)


def _along_axis(node: Node, x: Expr, axis: int, indices: Expr, values: Expr, *, accumulate: bool
                ) -> Expr:
    """Write slices of ``values`` at ``indices`` along one axis; a scalar counts as rank 1."""
    shape, count = shape_in(x), size_of(indices)
    axis = axis_of(axis, rank_of(x))
    line = node.reshape(indices, (count,))
    full = (*shape[:axis], count, *shape[axis + 1 :]) if shape else (count,)
    x = node.reshape(x, shape or (1,))
    made = index_put(node, x, (*(None,) * axis, line), node.reshape(values, full), accumulate)
    return node.reshape(made, shape)
