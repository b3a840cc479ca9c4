"""Converters that read and write at positions that other tensors give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from weft import op
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

_REDUCTIONS = {"sum": "add", "prod": "mul", "amin": "min", "amax": "max", "add": "add",
               "multiply": "mul"}


def counted_from_start(node: Node, indices: Expr, size: int) -> Expr:
    """Negative positions count from the end of an axis."""
    if isinstance(indices, Constant) and not (indices.data < 0).any():
        return indices
    moved = node.call(op.add, indices, node.scalar_like(size, indices))
    below = node.call(op.less, indices, node.scalar_like(0, indices))
    return node.call(op.where, below, moved, indices)


@converts("embedding")
def embedding(node: Node, weight: Expr, indices: Expr, *_options: Any) -> Expr:
    return node.call(op.take, weight, indices, axis=0, mode="clip")


@converts("index_select")
def index_select(node: Node, x: Expr, axis: int, indices: Expr) -> Expr:
    axis = axis_of(axis, rank_of(x))
    return node.call(op.take, x, indices, axis=axis, mode="clip")


@converts("gather")
def gather(node: Node, x: Expr, axis: int, indices: Expr, *_options: Any) -> Expr:
    return node.call(op.gather, x, indices, axis=axis_of(axis, rank_of(x)))


@converts("scatter.src", "scatter_add")
def scatter(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr) -> Expr:
    reduction = "add" if node.op.startswith("aten.scatter_add") else "update"
    return _scattered(node, x, axis, indices, updates, reduction)


@converts("scatter.value")
def scatter_value(node: Node, x: Expr, axis: int, indices: Expr, value: float) -> Expr:
    updates = node.broadcast(node.tensor(value, dtype_in(x)), shape_in(indices))
    return _scattered(node, x, axis, indices, updates, "update")


@converts("scatter_reduce.two")
def scatter_reduce(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr, kind: str,
                   include_self: bool) -> Expr:
    if kind not in _REDUCTIONS or not include_self:
        raise node.unsupported(f"reduce={kind!r}, include_self={include_self}",
                               expected=", ".join(_REDUCTIONS))
    return _scattered(node, x, axis, indices, updates, _REDUCTIONS[kind])


def _scattered(node: Node, x: Expr, axis: int, indices: Expr, updates: Expr,
               reduction: str) -> Expr:
    # torch reads as many updates as there are indices.
    for a, size in enumerate(shape_in(indices)):
        updates = node.slice(updates, a, 0, size)
    return node.call(op.scatter_elements, x, indices, updates, axis=axis_of(axis, rank_of(x)),
                     reduction=reduction)


@converts("index")
def index(node: Node, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """NumPy's advanced indexing by integers.

    The indexed axes become one, which is read at positions in row-major order. Their place is
    that of the first of them where they are neighbours, else the front.
    """
    axes = [a for a, i in enumerate(indices) if i is not None]
    places = _positions(node, x, indices, axes)
    rest = [a for a in range(rank_of(x)) if a not in axes]
    shape = shape_in(x)
    are_neighbours = axes == list(range(axes[0], axes[-1] + 1))
    before = [a for a in rest if a < axes[0]] if are_neighbours else []
    after = [a for a in rest if a not in before]
    x = node.transpose(x, (*before, *axes, *after))
    count = math.prod(shape[a] for a in axes)
    x = node.reshape(x, (*(shape[a] for a in before), count, *(shape[a] for a in after)))
    return node.call(op.take, x, places, axis=len(before), mode="clip")


def _positions(node: Node, x: Expr, indices: Sequence[Expr | None], axes: Sequence[int]) -> Expr:
    """Where the elements lie in the indexed axes taken as one."""
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
        raise node.unsupported("an index that is missing")
    if dtype_in(indices).is_bool:
        raise node.unsupported("a mask as index, whose result has a size that depends on values",
                               help="use torch.where")
    return node.cast(indices, "int64")


@converts("index_put", "_unsafe_index_put")
def index_put(node: Node, x: Expr, indices: Sequence[Expr | None], values: Expr,
              accumulate: bool = False, *_options: Any) -> Expr:
    """``x`` with elements replaced, or added to; a mask alone chooses between both."""
    first = indices[0] if indices else None
    if len(indices) == 1 and first is not None and dtype_in(first).is_bool:
        return _put_where(node, x, first, values, accumulate)
    axes = [a for a, i in enumerate(indices) if i is not None]
    if axes != list(range(len(axes))):
        return _put_along_later_axes(node, x, indices, values, accumulate)
    parts = [counted_from_start(node, _integers(node, i), size)
             for i, size in zip(indices, shape_in(x), strict=False)]
    common = np.broadcast_shapes(*map(shape_in, parts))
    stacked = [node.call(op.expand_dims, node.broadcast(p, common), axis=0, num_newaxis=1)
               for p in parts]
    tuples = stacked[0] if len(stacked) == 1 else node.tuple_call(op.concatenate, stacked, axis=0)
    updates = node.broadcast(node.cast(values, dtype_in(x)),
                             (*common, *shape_in(x)[len(axes) :]))
    return node.call(op.scatter_nd, x, tuples, updates, mode="add" if accumulate else "update")


def _put_where(node: Node, x: Expr, mask: Expr, values: Expr, accumulate: bool) -> Expr:
    if math.prod(shape_in(values)) != 1:
        raise node.unsupported("as many values as a mask has hits", help="use torch.where")
    value = node.reshape(node.cast(values, dtype_in(x)), ())
    new = node.call(op.add, x, value) if accumulate else value
    mask = node.reshape(mask, (*shape_in(mask), *(1,) * (rank_of(x) - rank_of(mask))))
    return node.call(op.where, mask, new, x)


def _put_along_later_axes(node: Node, x: Expr, indices: Sequence[Expr | None], values: Expr,
                          accumulate: bool) -> Expr:
    """One index behind whole axes: the axis comes first, and goes back."""
    axes = [a for a, i in enumerate(indices) if i is not None]
    if len(axes) != 1 or rank_of(_integers(node, indices[axes[0]])) != 1:
        raise node.unsupported("several indices behind whole axes")
    axis, rank = axes[0], rank_of(x)
    count = shape_in(_integers(node, indices[axis]))[0]
    full = tuple(count if a == axis else n for a, n in enumerate(shape_in(x)))
    order = (axis, *(a for a in range(rank) if a != axis))
    values = node.transpose(node.broadcast(values, full), order)
    result = index_put(node, node.transpose(x, order), (indices[axis],), values, accumulate)
    return node.transpose(result, tuple(np.argsort(order).tolist()))


@converts("index_copy")
def index_copy(node: Node, x: Expr, axis: int, indices: Expr, values: Expr) -> Expr:
    axis = axis_of(axis, rank_of(x))
    return index_put(node, x, (*(None,) * axis, indices), values)


@converts("index_add")
def index_add(node: Node, x: Expr, axis: int, indices: Expr, values: Expr, alpha: float) -> Expr:
    axis = axis_of(axis, rank_of(x))
    if alpha != 1:
        values = node.call(op.multiply, values, node.scalar_like(alpha, values))
    return index_put(node, x, (*(None,) * axis, indices), values, accumulate=True)
