"""Converters of embedding bags (sum, mean, max) and their gradients.

Bag ``b`` holds ``indices[offsets[b]:offsets[b + 1]]``; each index selects a row of the weight.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

_SUM, _MEAN, _MAX = range(3)


@converts("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    node: Node, weight: Expr, indices: Expr, offsets: Expr, _scale_by_count: bool, mode: int,
    _sparse: bool, factors: Expr | None = None, has_end: bool = False, padding: int = -1,
) -> tuple[Expr, ...]:
    """The bags; for gradients also the bag of each position, bag sizes, and the rows of maxima."""
    indices, offsets = node.cast(indices, "int64"), node.cast(offsets, "int64")
    bags = shape_in(offsets)[0] - bool(has_end)
    owner = _owners(node, indices, node.slice(offsets, 0, 0, bags))
    counts = _counted(node, indices, padding)
    sizes = _added(node, owner, node.cast(counts, "int64"), (bags,))
    rows = _wide(node, node.call(op.take, weight, indices, axis=0, mode="clip"))
    if factors is not None:
        rows = node.call(op.multiply, rows, _column(node, _wide(node, factors)))
    if mode == _MAX:
        result, positions = _maxima(node, rows, owner, counts, sizes)
        winners = node.call(op.take, indices, positions, axis=0, mode="clip")
        winners = node.call(op.where, node.call(op.less, positions, node.scalar_like(
            shape_in(indices)[0], positions)), winners, node.scalar_like(0, winners))
    else:
        kept = node.call(op.where, _column(node, counts), rows, node.scalar_like(0, rows))
        result = _added(node, owner, kept, (bags, shape_in(weight)[1]))
        if mode == _MEAN:
            result = node.call(op.divide, result, _column(node, _divisor(node, sizes, rows)))
        winners = sizes
    saved = (_in_shape(node, i, v) for i, v in ((1, owner), (2, sizes), (3, winners)))
    return node.cast(result, dtype_in(weight)), *saved


@converts("_embedding_bag_backward")
def embedding_bag_backward(
    node: Node, grad: Expr, indices: Expr, offsets: Expr, _owner: Expr, sizes: Expr,
    winners: Expr, count: int, by_frequency: bool, mode: int, sparse: bool,
    factors: Expr | None, padding: int = -1,
) -> Expr:
    """The gradient of the weight."""
    if sparse or by_frequency:
        raise node.unsupported("a sparse gradient, or one scaled by frequency")
    indices, offsets = node.cast(indices, "int64"), node.cast(offsets, "int64")
    shape = (count, shape_in(grad)[1])
    if mode == _MAX:
        return _added_to_winners(node, grad, node.cast(winners, "int64"),
                                 node.cast(sizes, "int64"), shape)
    bags = shape_in(grad)[0]
    owner = _owners(node, indices, node.slice(offsets, 0, 0, bags))
    if mode == _MEAN:
        grad = node.call(op.divide, grad, _column(node, _divisor(node, sizes, grad)))
    rows = node.call(op.take, grad, owner, axis=0, mode="clip")
    if factors is not None:
        rows = node.call(op.multiply, rows, _column(node, factors))
    kept = node.call(op.where, _column(node, _counted(node, indices, padding)), rows,
                     node.scalar_like(0, rows))
    return _added(node, indices, kept, shape)


@converts("_embedding_bag_per_sample_weights_backward")
def embedding_bag_factors_backward(
    node: Node, grad: Expr, weight: Expr, indices: Expr, offsets: Expr, _owner: Expr,
    _mode: int, padding: int = -1,
) -> Expr:
    """The gradient of ``per_sample_weights``, the factor of each position."""
    indices, offsets = node.cast(indices, "int64"), node.cast(offsets, "int64")
    owner = _owners(node, indices, node.slice(offsets, 0, 0, shape_in(grad)[0]))
    rows = node.call(op.multiply, node.call(op.take, grad, owner, axis=0, mode="clip"),
                     node.call(op.take, weight, indices, axis=0, mode="clip"))
    total = node.call(op.sum, rows, axis=(1,), keepdims=False)
    return node.call(op.where, _counted(node, indices, padding), total,
                     node.scalar_like(0, total))


def _owners(node: Node, indices: Expr, offsets: Expr) -> Expr:
    """The bag of each position: the number of bags that begin at or before it, minus one."""
    numbers = Constant(arrays.arange(shape_in(indices)[0])[:, None], span=node.span)
    has_begun = node.call(op.less_equal, node.reshape(offsets, (1, shape_in(offsets)[0])), numbers)
    count = node.call(op.sum, node.cast(has_begun, "int64"), axis=(1,), keepdims=False)
    return node.call(op.subtract, count, node.scalar_like(1, count))


def _counted(node: Node, indices: Expr, padding: int) -> Expr:
    """Whether a position counts: it does unless its index is the padding index."""
    return node.call(op.not_equal, indices, node.scalar_like(padding, indices))


def _wide(node: Node, x: Expr) -> Expr:
    """Cast 16-bit floats to float32 for sums."""
    return node.cast(x, "float32") if dtype_in(x).bits < 32 else x


def _column(node: Node, x: Expr) -> Expr:
    return node.reshape(x, (shape_in(x)[0], 1))


def _divisor(node: Node, sizes: Expr, like: Expr) -> Expr:
    """Bag sizes as divisors, with 1 for empty bags."""
    return node.cast(node.call(op.maximum, sizes, node.scalar_like(1, sizes)), dtype_in(like))


def _added(node: Node, rows: Expr, updates: Expr, shape: tuple[int, ...]) -> Expr:
    """Zeros of ``shape`` with ``updates[i]`` added to row ``rows[i]``."""
    zeros = node.broadcast(node.scalar_like(0, updates), shape)
    tuples = node.call(op.expand_dims, rows, axis=0, num_newaxis=1)
    return node.call(op.scatter_nd, zeros, tuples, updates, mode="add")


def _maxima(node: Node, rows: Expr, owner: Expr, counts: Expr, sizes: Expr
            ) -> tuple[Expr, Expr]:
    """The maxima of each bag, zeros for an empty one, and the first position of each maximum."""
    bags, (positions, width) = shape_in(sizes)[0], shape_in(rows)
    lowest = node.scalar_like(-math.inf, rows)
    kept = node.call(op.where, _column(node, counts), rows, lowest)
    tuples = node.call(op.expand_dims, owner, axis=0, num_newaxis=1)
    found = node.call(op.scatter_nd, node.broadcast(lowest, (bags, width)), tuples, kept,
                      mode="max")
    back = node.call(op.take, found, owner, axis=0, mode="clip")
    numbers = Constant(arrays.arange(positions)[:, None], span=node.span)
    nowhere = node.constant(positions, "int64")
    is_best = node.call(op.logical_and, node.call(op.equal, kept, back), _column(node, counts))
    candidates = node.call(op.where, is_best, numbers, nowhere)
    first = node.call(op.scatter_nd, node.broadcast(nowhere, (bags, width)), tuples, candidates,
                      mode="min")
    is_empty = node.call(op.equal, _column(node, sizes), node.scalar_like(0, sizes))
    return node.call(op.where, is_empty, node.scalar_like(0, found), found), first


def _added_to_winners(node: Node, grad: Expr, winners: Expr, sizes: Expr,
                      shape: tuple[int, ...]) -> Expr:
    """Add each element of a bag's gradient to the row that had the maximum."""
    is_empty = node.call(op.equal, _column(node, sizes), node.scalar_like(0, sizes))
    kept = node.call(op.where, is_empty, node.scalar_like(0, grad), grad)
    columns = np.broadcast_to(arrays.arange(shape[1]), shape_in(grad))
    tuples = [node.call(op.expand_dims, v, axis=0, num_newaxis=1)
              for v in (winners, Constant(np.ascontiguousarray(columns), span=node.span))]
    zeros = node.broadcast(node.scalar_like(0, grad), shape)
    return node.call(op.scatter_nd, zeros, node.tuple_call(op.concatenate, tuples, axis=0), kept,
                     mode="add")


def _in_shape(node: Node, index: int, value: Expr) -> Any:
    """A result that gradients read; zeros in the traced shape if torch leaves it out."""
    shape = tuple(n if isinstance(n, int) else -1 for n in node.result[index].shape)
    dtype = node.dtype(index)
    if shape_in(value) == shape or -1 in shape:
        return node.cast(value, dtype)
    return Constant(arrays.zeros(shape, dtype.numpy), span=node.span)
