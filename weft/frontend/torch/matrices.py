"""Operations on batches of matrices, for the linear algebra converters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.ir.expr import Constant, Expr


def flattened(node: Node, x: Expr) -> Expr:
    """``x`` as (batch, rows, columns)."""
    *batch, rows, columns = shape_in(x)
    return node.reshape(x, (math.prod(batch), rows, columns))


def broadcast_batch(node: Node, x: Expr, batch: Sequence[int]) -> Expr:
    return node.broadcast(x, (*batch, *shape_in(x)[-2:]))


def transposed(node: Node, x: Expr) -> Expr:
    """Swap the last two axes."""
    rank = rank_of(x)
    return node.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def triangle(node: Node, x: Expr, *, lower: bool, offset: int = 0) -> Expr:
    ones = arrays.ones(shape_in(x)[-2:], bool)
    kept = np.tril(ones, offset) if lower else np.triu(ones, offset)
    return node.call(op.where, Constant(kept, span=node.span), x, node.scalar_like(0, x))


def identity(node: Node, like: Expr, rows: int, columns: int | None = None) -> Expr:
    """Identity matrices in float64, with the batch axes of ``like``."""
    one = node.constant(arrays.eye(rows, columns), "float64")
    return node.broadcast(node.cast(one, "float64"),
                          (*shape_in(like)[:-2], rows, rows if columns is None else columns))


def diagonal(node: Node, x: Expr) -> Expr:
    """The diagonals (batch, min(rows, columns)) of a batch of matrices."""
    batch, rows, columns = shape_in(x)
    count = min(rows, columns)
    positions = Constant(arrays.arange(count, dtype=np.int64) * (columns + 1), span=node.span)
    return node.call(op.take, node.reshape(x, (batch, rows * columns)), positions, axis=1,
                     mode="clip")


def permuted_rows(node: Node, x: Expr, order: Expr) -> Expr:
    """Permute the rows of ``x`` (batch, rows, columns) by ``order`` (batch, rows)."""
    wide = node.broadcast(node.call(op.expand_dims, order, axis=2, num_newaxis=1),
                          (*shape_in(order), shape_in(x)[2]))
    return node.call(op.gather, x, wide, axis=1)


def permutation(node: Node, order: Expr, dtype: str) -> Expr:
    """The matrix P with ``P x[order] = x``."""
    rows = shape_in(order)[1]
    numbers = Constant(arrays.arange(rows, dtype=np.int64)[:, None], span=node.span)
    columns = node.call(op.expand_dims, order, axis=1, num_newaxis=1)
    return node.cast(node.call(op.equal, columns, numbers), dtype)
