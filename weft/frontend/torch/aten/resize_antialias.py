"""Converters of antialiased resizing and its gradients; filters widen when images shrink.

Each axis is a matmul with a constant matrix of weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr
from weft.topi.image.antialias import antialias_weights


@converts("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def resize(node: Node, x: Expr, sizes: Sequence[int], align_corners: bool,
           *factors: float | None) -> Expr:
    for axis, size, factor in zip((2, 3), sizes, factors, strict=True):
        weights = _weights(node, shape_in(x)[axis], size, align_corners, factor)
        x = _mixed(node, x, axis, weights)
    return x


@converts("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward")
def resize_backward(node: Node, grad: Expr, sizes: Sequence[int], source: Sequence[int],
                    align_corners: bool, *factors: float | None) -> Expr:
    for axis, size, before, factor in zip((2, 3), sizes, source[2:], factors, strict=True):
        weights = _weights(node, before, size, align_corners, factor)
        grad = _mixed(node, grad, axis, weights.T)
    return grad


def _mixed(node: Node, x: Expr, axis: int, weights: np.ndarray) -> Expr:
    """Multiply ``weights`` (new, old) and ``x`` along one axis."""
    last = rank_of(x) - 1
    order = [*(a for a in range(rank_of(x)) if a != axis), axis]
    back = [order.index(a) for a in range(rank_of(x))]
    table = np.ascontiguousarray(weights).astype(dtype_in(x).numpy)
    rows = x if axis == last else node.transpose(x, order)
    product = node.call(op.nn.dense, rows, Constant(table, span=node.span))
    return product if axis == last else node.transpose(product, back)


def _weights(node: Node, old: int, new: int, align_corners: bool, factor: float | None
             ) -> np.ndarray:
    return antialias_weights(old, new, align_corners, factor, cubic="bicubic" in node.op)
