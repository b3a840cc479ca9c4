"""Converters of pairwise distances between rows, ``cdist`` and ``pdist``, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr
from weft.op.composites import norms


@converts("_cdist_forward")
def cdist(node: Node, x: Expr, y: Expr, order: float, *_mode: Any) -> Expr:
    """The ``order``-norms of x[…, i, :] - y[…, j, :], (…, rows of x, rows of y)."""
    return _norm(node, _differences(node, x, y), order)


@converts("_cdist_backward")
def cdist_backward(node: Node, grad: Expr, x: Expr, y: Expr, order: float, distance: Expr
                   ) -> Expr:
    """The gradient of ``x``."""
    slopes = _slopes(node, _differences(node, x, y), grad, order, distance)
    total = node.call(op.sum, slopes, axis=(rank_of(slopes) - 2,), keepdims=False)
    return node.reshape(total, shape_in(x))


@converts("_pdist_forward")
def pdist(node: Node, x: Expr, order: float) -> Expr:
    """The distances of all pairs of rows i < j, in row-major order."""
    first, second = np.triu_indices(shape_in(x)[0], 1)
    ends = [node.call(op.take, x, Constant(i, span=node.span), axis=0) for i in (first, second)]
    return _norm(node, node.call(op.subtract, *ends), order)


@converts("_pdist_backward")
def pdist_backward(node: Node, grad: Expr, x: Expr, order: float, distance: Expr) -> Expr:
    """The gradient of ``cdist(x, x)``, where each pair occurs at (i, j) and at (j, i)."""
    rows = shape_in(x)[0]
    if rows < 2:
        return node.call(op.multiply, x, node.scalar_like(0, x))
    numbers = arrays.zeros((rows, rows), np.int64)
    upper = np.triu_indices(rows, 1)
    numbers[upper] = arrays.arange(len(upper[0]))
    positions = Constant(numbers + numbers.T, span=node.span)
    wide_grad, wide = (node.call(op.take, v, positions, axis=0) for v in (grad, distance))
    return cdist_backward(node, wide_grad, x, x, order, wide)


def _differences(node: Node, x: Expr, y: Expr) -> Expr:
    """x[…, i, :] - y[…, j, :], (…, i, j, :)."""
    left = node.call(op.expand_dims, x, axis=rank_of(x) - 1, num_newaxis=1)
    right = node.call(op.expand_dims, y, axis=rank_of(y) - 2, num_newaxis=1)
    return node.call(op.subtract, left, right)


def _norm(node: Node, x: Expr, order: float) -> Expr:
    """The ``order``-norm along the last axis."""
    if not shape_in(x)[-1]:
        return node.broadcast(node.scalar_like(0, x), shape_in(x)[:-1])
    return node.composed(norms.p_norm, x, order, (rank_of(x) - 1,))


def _slopes(node: Node, x: Expr, grad: Expr, order: float, norm: Expr) -> Expr:
    """The gradient of the elements of ``x``, given ``grad`` of its ``norm``.

    d|x|_p / dx = sign(x) (|x| / |x|_p) ** (p - 1); zero where the norm or the element is zero.
    """
    grad, norm = (node.call(op.expand_dims, v, axis=rank_of(v), num_newaxis=1)
                  for v in (grad, norm))
    zero, one = node.scalar_like(0, x), node.scalar_like(1, x)
    size, sign = node.call(op.abs, x), node.call(op.sign, x)
    signed = node.call(op.multiply, sign, grad)
    if order == 0:
        return node.call(op.multiply, x, zero)
    if order == 1:
        return signed
    if math.isinf(order):
        return node.call(op.where, node.call(op.equal, size, norm), signed, zero)
    is_zero = node.call(op.equal, norm, zero)
    share = node.call(op.divide, size, node.call(op.where, is_zero, one, norm))
    if order != 2:
        moves = node.call(op.greater, size, zero)
        power = node.call(op.power, node.call(op.where, moves, share, one),
                          node.scalar_like(order - 1, x))
        share = node.call(op.where, moves, power, zero)
    return node.call(op.where, is_zero, zero, node.call(op.multiply, signed, share))
