"""Converters of matmuls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.matrices import transposed
from weft.frontend.torch.node import Node, broadcast_shape, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr

_MATRIX = 2


@converts("mm", "bmm", "matmul", "dot", "mv")
def matmul(node: Node, a: Expr, b: Expr) -> Expr:
    """NumPy's ``matmul``: vectors are padded to matrices, leading axes broadcast."""
    a_is_vector, b_is_vector = rank_of(a) == 1, rank_of(b) == 1
    if a_is_vector:
        a = node.call(op.expand_dims, a, axis=0, num_newaxis=1)
    if b_is_vector:
        b = node.call(op.expand_dims, b, axis=1, num_newaxis=1)
    product = multiplied(node, a, b)
    rank = rank_of(product)
    dropped = [rank - 2] * a_is_vector + [rank - 1] * b_is_vector
    return node.call(op.squeeze, product, axis=tuple(dropped)) if dropped else product


@converts("linear")
def linear(node: Node, x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    is_vector = rank_of(weight) == 1
    product = matmul(node, x, weight) if is_vector else node.call(op.nn.dense, x, weight)
    return product if bias is None else node.call(op.add, product, bias)


@converts("addmm", "baddbmm")
def addmm(node: Node, bias: Expr, a: Expr, b: Expr, beta: float, alpha: float) -> Expr:
    """The sum beta * bias + alpha * (a @ b)."""
    product = _scaled(node, multiplied(node, a, b), alpha)
    return product if beta == 0 else node.call(op.add, product, _scaled(node, bias, beta))


@converts("addmv")
def addmv(node: Node, bias: Expr, a: Expr, b: Expr, beta: float, alpha: float) -> Expr:
    """The sum beta * bias + alpha * (matrix a @ vector b)."""
    product = _scaled(node, matmul(node, a, b), alpha)
    bias = node.broadcast(bias, shape_in(product))
    return product if beta == 0 else node.call(op.add, product, _scaled(node, bias, beta))


@converts("addbmm")
def addbmm(node: Node, bias: Expr, a: Expr, b: Expr, beta: float, alpha: float) -> Expr:
    """The sum beta * bias + alpha * sum(a[i] @ b[i]), as one matmul."""
    batch, rows, depth = shape_in(a)
    left = node.reshape(node.transpose(a, (1, 0, 2)), (rows, batch * depth))
    return addmm(node, bias, left, node.reshape(b, (batch * depth, shape_in(b)[2])), beta, alpha)


@converts("_trilinear")
def trilinear(node: Node, a: Expr, b: Expr, c: Expr, *rest: Any) -> Expr:
    """The product of three tensors, each with inserted broadcast axes, summed over ``summed``."""
    *expansions, summed, _unrolled = rest
    product: Expr | None = None
    dtype = dtype_in(a)
    inner = "float32" if dtype.is_narrow_float else dtype
    for x, axes in zip((a, b, c), expansions, strict=True):
        wide = _expanded(node, node.cast(x, inner), axes)
        product = wide if product is None else node.call(op.multiply, product, wide)
    return node.cast(node.call(op.sum, product, axis=tuple(summed), keepdims=False), dtype)


def _expanded(node: Node, x: Expr, axes: Sequence[int]) -> Expr:
    """``x`` with axes of size 1 at the given positions of the result."""
    for axis in sorted(axes):
        x = node.call(op.expand_dims, x, axis=axis, num_newaxis=1)
    return x


def _scaled(node: Node, x: Expr, factor: float) -> Expr:
    return x if factor == 1 else node.call(op.multiply, x, node.scalar_like(factor, x))


def multiplied(node: Node, a: Expr, b: Expr) -> Expr:
    """Matmul of matrices, or of batches of matrices that broadcast."""
    if rank_of(b) == _MATRIX:
        return node.call(op.nn.dense, a, transposed(node, b))
    a_shape, b_shape = shape_in(a), shape_in(b)
    batch = broadcast_shape(a_shape[:-2], b_shape[:-2])
    stacks = [_stacked(node, x, batch) for x in (a, b)]
    product = node.call(op.nn.batch_matmul, *stacks, transpose_a=False, transpose_b=False)
    return node.reshape(product, (*batch, a_shape[-2], b_shape[-1]))


def _stacked(node: Node, x: Expr, batch: tuple[int, ...]) -> Expr:
    """``x`` as (batch, rows, columns); a single matrix keeps a batch of one."""
    shape = shape_in(x)
    if math.prod(shape[:-2]) != 1:
        x = node.broadcast(x, (*batch, *shape[-2:]))
    return node.reshape(x, (math.prod(shape_in(x)[:-2]), *shape[-2:]))
