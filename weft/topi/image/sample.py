"""Sampling of images at positions given by another tensor.

For each axis, the elements around a position and their weights are lookup tables,
computed once for all channels: ``positions``, where -1 means a zero, and ``weights``, both
(taps, …). Positions may have any value, NaN included: every read stays inside the data.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

from weft import te
from weft.ir.dtype import int64
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, all_of, as_prim, const, maximum, minimum, select
from weft.topi.image.resize import EXPRESSIONS
from weft.topi.image.taps import Resampling

# The kernels, at the positions of Resampling: nearest, linear, cubic.
KERNELS = {
    "nearest": Resampling(1, "nearest_neighbor"),
    "bilinear": Resampling(1, "linear"),
    "bicubic": Resampling(1, "cubic"),
}

Position = Callable[..., PrimExpr]


@dataclass(frozen=True, slots=True)
class AxisTaps:
    """The taps of one axis: their number, positions, and weights (``None``: all 1)."""

    count: int
    positions: te.Tensor
    weights: te.Tensor | None


def axis_taps(
    position: Position, shape: Sequence[PrimExpr], size: PrimExpr, *, method: str,
    padding: str, fold: Callable[[PrimExpr], PrimExpr],
) -> AxisTaps:
    """The taps at ``position(*index)`` for each index of ``shape``, on an axis of ``size``.

    ``fold`` maps a position into the data, for paddings other than "zeros".
    """
    kernel = KERNELS[method]
    at = te.compute(tuple(shape), position, name="position", role=te.StageRole.LOOKUP_TABLE)

    def tap(k: PrimExpr, index: tuple[PrimExpr, ...]) -> PrimExpr:
        if method == "nearest":
            return fold(te.round(fold(at[index])))
        base = fold(at[index]) if method == "bilinear" else at[index]
        found = as_prim(kernel.first(base, 1.0, EXPRESSIONS)) + k.astype(base.dtype)
        return fold(found) if method == "bicubic" else found

    def coord(k: PrimExpr, *index: PrimExpr) -> PrimExpr:
        return index_of(tap(k, index), size, outside=-1 if padding == "zeros" else None)

    def weight(k: PrimExpr, *index: PrimExpr) -> PrimExpr:
        base = fold(at[index]) if method == "bilinear" else at[index]
        first = as_prim(kernel.first(base, 1.0, EXPRESSIONS)) + k.astype(base.dtype)
        return as_prim(kernel.weigh(te.abs(base - first), EXPRESSIONS))

    count = kernel.count(1.0)
    positions = te.compute((count, *shape), coord, name="positions", role=te.StageRole.LOOKUP_TABLE)
    if method == "nearest":
        return AxisTaps(count, positions, None)
    return AxisTaps(count, positions, te.compute((count, *shape), weight, name="weights",
                                              role=te.StageRole.LOOKUP_TABLE))


def index_of(coord: PrimExpr, size: PrimExpr, *, outside: int | None) -> PrimExpr:
    """An integral position as an index; outside the data ``outside``, or the nearest element.

    The comparison precedes the conversion, so that infinities and NaN count as outside.
    """
    last = (size - 1).astype(coord.dtype)
    low = coord >= const(0, coord.dtype)
    if outside is None:
        kept = select(low, minimum(coord, last), const(0, coord.dtype))
        return kept.astype(int64)
    inside = all_of(low, coord <= last)
    kept = select(inside, coord, const(0, coord.dtype))
    return select(inside, kept.astype(int64), const(outside, int64))


def mix(
    read: Callable[[tuple[PrimExpr, ...]], PrimExpr], taps: Sequence[AxisTaps],
    index: tuple[PrimExpr, ...],
) -> PrimExpr:
    """The weighted sum over all combinations of the axes' taps."""

    def corner(numbers: tuple[int, ...]) -> PrimExpr:
        positions = [t.positions[(k, *index)] for t, k in zip(taps, numbers, strict=True)]
        # A position of -1 reads element 0, which is then discarded: vectors need no branch.
        value = read(tuple(maximum(p, 0) for p in positions))
        inside = all_of(*(p >= 0 for p in positions))
        value = select(inside, value, const(0, value.dtype))
        for t, k in zip(taps, numbers, strict=True):
            value = value if t.weights is None else value * t.weights[(k, *index)]
        return value

    corners = itertools.product(*(range(t.count) for t in taps))
    return functools.reduce(operator.add, map(corner, corners))


def grid_sample(
    x: te.Tensor, grid: te.Tensor, *, method: str, padding: str, align_corners: bool
) -> te.Tensor:
    """``x`` (N, C, axes…) at the positions ``grid`` (N, axes, positions…), in [-1, 1].

    The first coordinate belongs to the last axis of ``x``.
    """
    spatial = x.ndim - 2
    shape = (grid.shape[0], *grid.shape[2:])
    taps = []
    for axis in range(spatial):
        size = x.shape[2 + axis]
        taps.append(axis_taps(
            _unnormalised(grid, spatial - 1 - axis, size, align_corners), shape, size,
            method=method, padding=padding,
            fold=_fold(padding, size, align_corners),
        ))

    def element(n: PrimExpr, c: PrimExpr, *coord: PrimExpr) -> PrimExpr:
        return mix(lambda at: x[(n, c, *at)], taps, (n, *coord))

    return te.compute((x.shape[0], x.shape[1], *grid.shape[2:]), element, name="grid_sample",
                      role=te.StageRole.RESAMPLING)


def _unnormalised(
    grid: te.Tensor, coordinate: int, size: PrimExpr, align_corners: bool
) -> Position:
    """Map [-1, 1] to elements: -1 and 1 are the border elements or their outer edges."""
    one, half = const(1, grid.dtype), const(0.5, grid.dtype)

    def position(n: PrimExpr, *coord: PrimExpr) -> PrimExpr:
        value = grid[(n, coordinate, *coord)]
        if align_corners:
            return (value + one) * half * (size - 1).astype(grid.dtype)
        return ((value + one) * size.astype(grid.dtype) - one) * half

    return position


def _fold(
    padding: str, size: PrimExpr, align_corners: bool
) -> Callable[[PrimExpr], PrimExpr]:
    if padding == "zeros":
        return lambda p: p

    def clip(p: PrimExpr) -> PrimExpr:
        return maximum(minimum(p, (size - 1).astype(p.dtype)), const(0, p.dtype))

    def reflect(p: PrimExpr) -> PrimExpr:
        """Reflect a position at the border elements or their edges until it is inside."""
        low = const(0.0 if align_corners else -0.5, p.dtype)
        width = (size - 1 if align_corners else size).astype(p.dtype)
        # With one element and ``align_corners`` the width is 0: this avoids the division by zero,
        # and ``select`` replaces the result.
        safe = maximum(width, const(0.5, p.dtype))
        away = te.abs(p - low)
        turns = te.floor(away / safe)
        rest = away - turns * safe
        is_odd = (turns - te.floor(turns * const(0.5, p.dtype)) * const(2, p.dtype)) > const(
            0.5, p.dtype)
        back = select(is_odd, safe - rest, rest) + low
        return clip(select(width > const(0, p.dtype), back, const(0, p.dtype)))

    return clip if padding == "border" else reflect


def crop_and_resize(
    x: te.Tensor, boxes: te.Tensor, box_indices: te.Tensor, *, size: Sequence[int], method: str,
    extrapolation_value: float, channels: int, rows: int, columns: int,
) -> te.Tensor:
    """Each box (y1, x1, y2, x2, relative to the image) of image ``box_indices``, resized.

    ``channels``, ``rows`` and ``columns`` are the positions of these axes in ``x``; batch is 0.
    """
    count = boxes.shape[0]
    dtype = boxes.dtype
    taps, flags = [], []
    for i, axis in enumerate((rows, columns)):
        extent = x.shape[axis]
        position = _crop_position(boxes, i, extent, size[i])
        inside = te.compute((count, size[i]), lambda b, j, at=position, n=extent: select(
            all_of(at(b, j) >= const(0, dtype), at(b, j) <= (n - 1).astype(dtype)),
            const(1, int64), const(0, int64)), name="inside", role=te.StageRole.LOOKUP_TABLE)
        flags.append(inside)
        taps.append(_crop_taps(position, (count, as_prim(size[i])), extent, method))

    def element(*index: PrimExpr) -> PrimExpr:
        b, y, x_ = index[0], index[rows], index[columns]
        image = maximum(minimum(box_indices[b].astype(int64), x.shape[0] - 1), 0)

        def read(at: tuple[PrimExpr, ...]) -> PrimExpr:
            coord = {0: image, channels: index[channels], rows: at[0], columns: at[1]}
            return x[tuple(coord[a] for a in range(4))].astype(dtype)

        total = _mix_rows_columns(read, taps, b, y, x_)
        found = all_of(flags[0][b, y].equal(1), flags[1][b, x_].equal(1))
        return select(found, total, const(extrapolation_value, dtype))

    extents = {0: count, channels: x.shape[channels], rows: size[0], columns: size[1]}
    return te.compute([extents[a] for a in range(4)], element, name="crop_and_resize",
                      role=te.StageRole.RESAMPLING)


def _crop_position(boxes: te.Tensor, row: int, extent: PrimExpr, size: int) -> Position:
    dtype = boxes.dtype

    def position(b: PrimExpr, j: PrimExpr) -> PrimExpr:
        first, last = boxes[b, row], boxes[b, row + 2]
        span = (extent - 1).astype(dtype)
        if size == 1:
            return (first + last) * const(0.5, dtype) * span
        return first * span + j.astype(dtype) * ((last - first) * span / const(size - 1, dtype))

    return position


def _crop_taps(
    position: Position, shape: tuple[PrimExpr, PrimExpr], extent: PrimExpr, method: str
) -> AxisTaps:
    """The nearest element; halves round up, unlike in ``grid_sample``."""
    if method == "bilinear":
        return axis_taps(position, shape, extent, method=method, padding="border",
                         fold=lambda p: p)

    def coord(_: PrimExpr, b: PrimExpr, j: PrimExpr) -> PrimExpr:
        at = position(b, j)
        return index_of(te.floor(at + const(0.5, at.dtype)), extent, outside=None)

    return AxisTaps(1, te.compute((1, *shape), coord, name="positions",
                                  role=te.StageRole.LOOKUP_TABLE), None)


def _mix_rows_columns(
    read: Callable[[tuple[PrimExpr, ...]], PrimExpr], taps: Sequence[AxisTaps], b: PrimExpr,
    y: PrimExpr, x: PrimExpr,
) -> PrimExpr:
    """As ``mix``, with separate tables for rows and columns."""

    def corner(numbers: tuple[int, int]) -> PrimExpr:
        value = read((taps[0].positions[numbers[0], b, y], taps[1].positions[numbers[1], b, x]))
        for t, k, i in zip(taps, numbers, (y, x), strict=True):
            value = value if t.weights is None else value * t.weights[k, b, i]
        return value

    corners = itertools.product(range(taps[0].count), range(taps[1].count))
    return functools.reduce(operator.add, map(corner, corners))


def affine_grid(theta: te.Tensor, size: Sequence[int]) -> te.Tensor:
    """The grid (N, 2, height, width) of positions in [-1, 1], mapped by ``theta`` (N, 2, 3)."""
    dtype = theta.dtype

    def along(i: PrimExpr, n: int) -> PrimExpr:
        return const(-1, dtype) + i.astype(dtype) * const(2.0 / max(n - 1, 1), dtype)

    def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        return (theta[n, c, 0] * along(x, size[1]) + theta[n, c, 1] * along(y, size[0])
                + theta[n, c, 2])

    return te.compute((theta.shape[0], 2, *size), element, name="affine_grid")
