"""Converters of nearest-neighbour and linear upsampling.

Each axis is a sum over taps of ``take(x, positions) * weights``. Positions and weights are
constants for fixed sizes; for symbolic ones the same formulas run in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.resampling import resampling_order
from weft.frontend.torch.dims import scaled_size
from weft.frontend.torch.node import Node, dtype_in, is_symbolic, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import AnyDim, Constant, Dim, Expr, dim_max, dim_sub, typical_size


@converts("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(node: Node, x: Expr, sizes: Sequence[int] | None,
            factors: Sequence[float] | None) -> Expr:
    for axis, size, ratio in _grid(node, x, sizes, factors):
        if isinstance(ratio, float) and not is_symbolic(size):
            sources: Expr = Constant(np.floor(arrays.arange(size, dtype=np.float32)
                                              * np.float32(ratio)), span=node.span)
        else:
            steps = node.call(op.arange, start=0, stop=size, step=1, dtype="float32")
            sources = node.call(op.floor, node.call(
                op.multiply, steps, node.tensor(ratio, "float32")))
        x = _taken(node, x, axis, sources)
    return x


@converts("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear(node: Node, x: Expr, sizes: Sequence[int] | None, align_corners: bool,
           factors: Sequence[float] | None) -> Expr:
    for axis, size, ratio in _grid(node, x, sizes, factors):
        last = shape_in(x)[axis] - 1
        if isinstance(ratio, float) and not is_symbolic(size, last):
            low, share = _fixed_source(size, last, ratio, align_corners)
        else:
            low, share = _source(node, size, last, ratio, align_corners)
        x = _interpolated(node, x, axis, low, share)
    return x


def _fixed_source(size: int, last: int, ratio: float, align_corners: bool) -> tuple[Expr, Expr]:
    """For each output position the input position below, and the share of the next one."""
    steps = arrays.arange(size)
    if align_corners:
        source = steps * (last / (size - 1) if size > 1 else 0.0)
    else:
        source = np.maximum((steps + 0.5) * ratio - 0.5, 0.0)
    low = np.minimum(np.floor(source), last)
    return Constant(low), Constant(source - low)


def _source(node: Node, size: Dim, last: Dim, ratio: float | Expr, align_corners: bool
            ) -> tuple[Expr, Expr]:
    """``_fixed_source`` of symbolic sizes."""
    half, zero = node.constant(0.5, "float64"), node.constant(0.0, "float64")
    steps = node.call(op.arange, start=0, stop=size, step=1, dtype="float64")
    end = node.tensor(last, "float64")
    if align_corners:
        gaps = node.tensor(dim_max(dim_sub(size, 1), 1), "float64")
        source = node.call(op.multiply, steps, node.call(op.divide, end, gaps))
    else:
        shifted = node.call(op.multiply, node.call(op.add, steps, half),
                            node.tensor(ratio, "float64"))
        source = node.call(op.maximum, node.call(op.subtract, shifted, half), zero)
    low = node.call(op.minimum, node.call(op.floor, source), end)
    return low, node.call(op.subtract, source, low)


def _interpolated(node: Node, x: Expr, axis: int, low: Expr, share: Expr) -> Expr:
    """``x`` at ``low`` and at the next position, the second with weight ``share``."""
    dtype, rest = dtype_in(x), rank_of(x) - axis - 1
    second = _wide(node, node.cast(share, dtype), rest)
    first = node.call(op.subtract, node.constant(1, dtype), second)
    after = node.call(op.add, low, node.constant(1, dtype_in(low)))
    parts = [node.call(op.multiply, _taken(node, x, axis, at), weight)
             for at, weight in ((low, first), (after, second))]
    return node.call(op.add, *parts)


def _wide(node: Node, line: Expr, count: int) -> Expr:
    """A vector with ``count`` further axes of size 1."""
    return node.call(op.expand_dims, line, axis=1, num_newaxis=count) if count else line


def _grid(node: Node, x: Expr, sizes: Sequence[Dim] | None, factors: Sequence[float] | None
          ) -> list[tuple[int, Any, float | Expr]]:
    """The axes that change, in processing order: axis, new size, source step per output step."""
    spatial = shape_in(x)[2:]
    if factors is not None:
        new = [_scaled(n, f) for n, f in zip(spatial, factors, strict=True)]
        ratios: list[float | Expr] = [1 / f for f in factors]
    else:
        new = list(sizes or spatial)
        ratios = [_ratio(node, n, m) for n, m in zip(spatial, new, strict=True)]
    if 0 in (*spatial, *new):
        raise node.unsupported("an image without pixels", got=f"{spatial} to {tuple(new)}")
    changes = {axis: (size, ratio) for axis, (size, ratio)
               in enumerate(zip(new, ratios, strict=True), start=2)
               if size != spatial[axis - 2] or ratio != 1}
    growth = {axis: typical_size(size) / max(typical_size(spatial[axis - 2]), 1)
              for axis, (size, _) in changes.items()}
    return [(axis, *changes[axis]) for axis in resampling_order(growth)]


def _scaled(size: Dim, factor: float) -> Dim:
    """floor(size * factor); ``TypeError`` for a symbolic size if floats may round the product."""
    new = scaled_size(size, factor)
    if isinstance(new, AnyDim):
        raise TypeError(f"a symbolic size times {factor}")
    return new


def _ratio(node: Node, size: Dim, new: Dim) -> float | Expr:
    """The quotient of the sizes, as a tensor for symbolic sizes."""
    if size == new:
        return 1.0
    if not is_symbolic(size, new):
        return size / new  # type: ignore[operator]
    return node.call(op.divide, node.tensor(size, "float64"), node.tensor(new, "float64"))


def _taken(node: Node, x: Expr, axis: int, sources: Expr) -> Expr:
    return node.call(op.take, x, node.cast(sources, "int64"), axis=axis, mode="clip")
