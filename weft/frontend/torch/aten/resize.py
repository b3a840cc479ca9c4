"""Converters of nearest-neighbour and linear upsampling.

Each axis is a sum over taps of ``take(x, positions) * weights``, with constant positions and
weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.resampling import resampling_order
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr


@converts("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(node: Node, x: Expr, sizes: Sequence[int] | None,
            factors: Sequence[float] | None) -> Expr:
    for axis, size, ratio in _grid(x, sizes, factors):
        sources = np.floor(np.arange(size, dtype=np.float32) * np.float32(ratio))
        x = _taken(node, x, axis, sources)
    return x


@converts("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear(node: Node, x: Expr, sizes: Sequence[int] | None, align_corners: bool,
           factors: Sequence[float] | None) -> Expr:
    for axis, size, ratio in _grid(x, sizes, factors):
        steps, last = np.arange(size), shape_in(x)[axis] - 1
        if align_corners:
            source = steps * (last / (size - 1) if size > 1 else 0.0)
        else:
            source = np.maximum((steps + 0.5) * ratio - 0.5, 0.0)
        low = np.minimum(np.floor(source), last)
        share = (source - low).astype(dtype_in(x).numpy)
        share = share.reshape(-1, *(1,) * (rank_of(x) - axis - 1))
        first = _taken(node, x, axis, low)
        second = _taken(node, x, axis, np.minimum(low + 1, last))
        x = node.call(op.add, node.call(op.multiply, first, Constant(1 - share, span=node.span)),
                      node.call(op.multiply, second, Constant(share, span=node.span)))
    return x


def _grid(x: Expr, sizes: Sequence[int] | None, factors: Sequence[float] | None
          ) -> list[tuple[int, int, float]]:
    """The axes that change, in processing order: axis, new size, source step per output step."""
    spatial = shape_in(x)[2:]
    if factors is not None:
        new = [int(n * f) for n, f in zip(spatial, factors, strict=True)]
        ratios = [1 / f for f in factors]
    else:
        new = list(sizes or spatial)
        ratios = [n / m for n, m in zip(spatial, new, strict=True)]
    changes = {axis: (size, ratio) for axis, (size, ratio)
               in enumerate(zip(new, ratios, strict=True), start=2)
               if (size, ratio) != (spatial[axis - 2], 1)}
    order = resampling_order({axis: 1 / ratio for axis, (_, ratio) in changes.items()})
    return [(axis, *changes[axis]) for axis in order]


def _taken(node: Node, x: Expr, axis: int, sources: np.ndarray) -> Expr:
    positions = Constant(sources.astype(np.int64), span=node.span)
    return node.call(op.take, x, positions, axis=axis, mode="clip")
