"""Converters of grid sampling and its gradients."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.frontend.torch.vjp import input_gradients
from weft.ir.expr import Expr
from weft.support.dataclass import dataclass

# Indexed by torch's enum values.
_METHODS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


@converts("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(node: Node, x: Expr, grid: Expr, method: int, padding: int,
                 align_corners: bool) -> Expr:
    """Sample ``x`` (N, C, axes…) at ``grid`` (N, positions…, axes), with positions in [-1, 1]."""
    rank = rank_of(x)
    dtype = dtype_in(x)
    wide = "float32" if dtype.bits < 32 else dtype  # 16 bits are too few for positions
    positions = node.transpose(node.cast(grid, wide), (0, rank - 1, *range(1, rank - 1)))
    result = node.call(op.image.grid_sample, node.cast(x, wide), positions,
                       method=_METHODS[method], padding_mode=_PADDINGS[padding],
                       align_corners=bool(align_corners), layout="NCHW" if rank == 4 else "NCDHW")
    return node.cast(result, dtype)


@converts("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(node: Node, grad: Expr, x: Expr, grid: Expr, method: int,
                          padding: int, align_corners: bool, *_wanted: Any
                          ) -> tuple[Expr, Expr]:
    """The gradients of data and grid."""
    how = Sampling(_METHODS[method], _PADDINGS[padding], bool(align_corners))
    for_x, for_grid = input_gradients(lambda a, b: sampled(node, a, b, how), (x, grid), grad)
    return for_x, for_grid


@dataclass(frozen=True, slots=True)
class Sampling:
    """Interpolation between elements and padding outside the data."""

    method: str
    padding: str
    align_corners: bool


@dataclass(frozen=True, slots=True)
class Tap:
    """A contributing element along one axis: its index, still a float, and its weight."""

    index: Expr
    weight: Expr | None


def sampled(node: Node, x: Expr, grid: Expr, how: Sampling) -> Expr:
    """``grid_sampler`` built from gathers and arithmetic, which all have gradients."""
    (batch, channels, *sizes), sizes_out = shape_in(x), shape_in(grid)[1:-1]
    count = math.prod(sizes_out)
    flat = node.reshape(x, (batch, channels, math.prod(sizes)))
    rows = node.reshape(grid, (batch, count, len(sizes)))
    taps = []
    for axis, size in enumerate(sizes):
        number = len(sizes) - 1 - axis
        along = node.reshape(node.slice(rows, 2, number, number + 1), (batch, 1, count))
        taps.append(_taps(node, _unnormalised(node, along, size, how), size, how))
    parts = [_corner(node, flat, corner, sizes, how) for corner in itertools.product(*taps)]
    total = functools.reduce(lambda a, b: node.call(op.add, a, b), parts)
    return node.reshape(total, (batch, channels, *sizes_out))


def _corner(node: Node, flat: Expr, corner: Sequence[Tap], sizes: Sequence[int],
            how: Sampling) -> Expr:
    """The element at one tap per axis, times the weights; zero padding applies outside the data."""
    batch, channels, _ = shape_in(flat)
    flat_index: Expr | None = None
    inside: Expr | None = None
    for tap, size in zip(corner, sizes, strict=True):
        held = node.call(op.clip, tap.index, a_min=0.0, a_max=float(size - 1))
        index = node.cast(held, "int64")
        flat_index = index if flat_index is None else node.call(
            op.add, node.call(op.multiply, flat_index, node.scalar_like(size, flat_index)), index)
        within = node.call(op.equal, held, tap.index)
        inside = within if inside is None else node.call(op.logical_and, inside, within)
    if flat_index is None or inside is None:
        raise node.unsupported("data without spatial axes")
    count = shape_in(flat_index)[2]
    value = node.call(op.gather, flat, node.broadcast(flat_index, (batch, channels, count)), axis=2)
    if how.padding == "zeros":
        value = node.call(op.where, inside, value, node.scalar_like(0, value))
    for tap in corner:
        value = value if tap.weight is None else node.call(op.multiply, value, tap.weight)
    return value


def _unnormalised(node: Node, p: Expr, size: int, how: Sampling) -> Expr:
    """Convert [-1, 1] to element indices; the ends are the outermost elements or their edges."""
    raised = node.call(op.add, p, node.scalar_like(1, p))
    if how.align_corners:
        return node.call(op.multiply, raised, node.scalar_like((size - 1) / 2, p))
    return node.call(op.subtract, node.call(op.multiply, raised, node.scalar_like(size / 2, p)),
                     node.scalar_like(0.5, p))


def _taps(node: Node, p: Expr, size: int, how: Sampling) -> list[Tap]:
    if how.method == "nearest":
        return [Tap(node.call(op.round, _folded(node, p, size, how)), None)]
    base = p if how.method == "bicubic" else _folded(node, p, size, how)
    low = node.call(op.floor, base)
    share = node.call(op.subtract, base, low)
    one = node.scalar_like(1, p)
    if how.method == "bilinear":
        return [Tap(low, node.call(op.subtract, one, share)),
                Tap(node.call(op.add, low, one), share)]
    return [Tap(_folded(node, node.call(op.add, low, node.scalar_like(k, p)), size, how),
                _cubic(node, share, k)) for k in (-1, 0, 1, 2)]


def _cubic(node: Node, share: Expr, k: int) -> Expr:
    """Keys' kernel at |share - k|, by Horner's rule (a = -0.75)."""
    a, s = _CUBIC, (share if k <= 0 else node.call(op.subtract, node.scalar_like(1, share), share))
    if k in (0, 1):
        coefficients = (a + 2, -(a + 3), 0.0, 1.0)
    else:
        s = node.call(op.add, s, node.scalar_like(1, s))
        coefficients = (a, -5 * a, 8 * a, -4 * a)
    total = node.scalar_like(coefficients[0], s)
    for c in coefficients[1:]:
        total = node.call(op.add, node.call(op.multiply, total, s), node.scalar_like(c, s))
    return total


def _folded(node: Node, p: Expr, size: int, how: Sampling) -> Expr:
    """Map positions into the data, for paddings other than zeros."""
    if how.padding == "zeros":
        return p
    if how.padding == "reflection":
        p = _reflected(node, p, size, how.align_corners)
    return node.call(op.clip, p, a_min=0.0, a_max=float(size - 1))


def _reflected(node: Node, p: Expr, size: int, align_corners: bool) -> Expr:
    """Reflect positions at the outermost elements or at their outer edges, repeatedly."""
    low, width = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if width <= 0:
        return node.call(op.multiply, p, node.scalar_like(0, p))
    away = node.call(op.abs, node.call(op.subtract, p, node.scalar_like(low, p)))
    turns = node.call(op.floor, node.call(op.divide, away, node.scalar_like(2 * width, p)))
    rest = node.call(op.subtract, away,
                     node.call(op.multiply, turns, node.scalar_like(2 * width, p)))
    back = node.call(op.subtract, node.scalar_like(2 * width, p), rest)
    near = node.call(op.less_equal, rest, node.scalar_like(width, p))
    return node.call(op.add, node.call(op.where, near, rest, back), node.scalar_like(low, p))
