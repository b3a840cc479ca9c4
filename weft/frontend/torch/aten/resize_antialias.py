"""Converters of antialiased resizing and its gradients; filters widen when images shrink.

Each axis is a matmul with a constant matrix of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

_CUBIC = -0.5  # as in Pillow


def _triangle(distance: float) -> float:
    return max(1.0 - abs(distance), 0.0)


def _cubic(distance: float) -> float:
    """Keys' kernel."""
    x, a = abs(distance), _CUBIC
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


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
    """The weights (new, old) of the old elements in each new one; rows add up to 1."""
    kernel, reach = (_cubic, 2.0) if "bicubic" in node.op else (_triangle, 1.0)
    if align_corners:
        scale = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        scale = 1 / factor if factor else old / new
    return np.array([_row(i, old, scale, kernel, reach) for i in range(new)])


def _row(i: int, old: int, scale: float, kernel: Callable[[float], float], reach: float
         ) -> np.ndarray:
    stretch = max(scale, 1.0)
    center = scale * (i + 0.5)
    first = max(math.floor(center - reach * stretch + 0.5), 0)
    end = min(math.floor(center + reach * stretch + 0.5), old)
    row = arrays.zeros(old)
    row[first:end] = [kernel((j - center + 0.5) / stretch) for j in range(first, end)]
    return row / (row.sum() or 1.0)
