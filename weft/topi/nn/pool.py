"""Pooling over windows of the spatial axes, in any layout that does not split them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, const, int_value, maximum, minimum
from weft.tir.row_major import element_count
from weft.topi.layout import Layout
from weft.topi.nn.conv import SPATIAL_AXES, pad_spatial, side_padding
from weft.topi.nn.window import window_count, window_count_up, window_span


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """The window of a pooling: sizes, strides, dilation and padding along one to three axes."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def spatial(self) -> str:
        """The letters of its axes, such as ``HW``."""
        return SPATIAL_AXES[len(self.size)]


@dataclass(frozen=True, slots=True)
class AxisWindow:
    """One axis of a pooling: windows start at ``stride * i - before``, taps ``step`` apart."""

    taps: int
    stride: int
    step: int
    before: int
    after: int
    ceil_mode: bool

    @property
    def span(self) -> int:
        return window_span(self.taps, self.step)

    def count(self, size: PrimExpr) -> PrimExpr:
        """The number of windows; in ceil mode the last must start before the padding at the end."""
        padded = size + (self.before + self.after)
        if not self.ceil_mode:
            return window_count(padded, self.span, self.stride)
        windows = window_count_up(padded, self.span, self.stride)
        last_inside = window_count(size + self.before, 1, self.stride)
        return minimum(windows, last_inside)

    def overhang(self, size: PrimExpr) -> int:
        """Elements beyond the padding that the last window covers; a bound for dynamic sizes."""
        known, windows = int_value(size), int_value(self.count(size))
        if known is None or windows is None:
            return self.stride - 1 if self.ceil_mode else 0
        return max(0, (windows - 1) * self.stride + self.span - known - self.before - self.after)

    def valid_taps(self, index: PrimExpr, size: PrimExpr, *, include_pad: bool) -> PrimExpr:
        """The taps of window ``index`` inside the data, or inside data and padding."""
        start = index * self.stride - self.before
        limit = size + self.after if include_pad else size
        stop = minimum((limit - start + (self.step - 1)) // self.step, self.taps)
        if include_pad:
            return stop
        return stop - maximum((const(0) - start + (self.step - 1)) // self.step, 0)


def axis_windows(window: PoolWindow) -> tuple[AxisWindow, ...]:
    """The window along each axis."""
    sides = side_padding(window.padding, len(window.size))
    return tuple(
        AxisWindow(taps, stride, step, before, after, window.ceil_mode)
        for taps, stride, step, (before, after) in zip(
            window.size, window.strides, window.dilation, sides, strict=True
        )
    )


def max_pool(
    x: te.Tensor, window: PoolWindow, layout: Layout, *, by_columns: bool = False
) -> te.Tensor:
    """The maximum of each window; stages ``data_pad`` (if padded) and ``pool_max``.

    With ``by_columns`` a stage ``pool_columns`` first reduces each column of a window; overlapping
    windows share its results.
    """
    pool = _pool_by_columns if by_columns else _pool
    return pool(x, window, layout, te.max, te.min_value(x.dtype), "pool_max")


def avg_pool(
    x: te.Tensor, window: PoolWindow, layout: Layout, *, count_include_pad: bool,
    by_columns: bool = False,
) -> te.Tensor:
    """The mean of each window; stages ``data_pad`` (if padded), ``pool_sum``, ``pool_avg``.

    The mean is over the taps inside the data, or inside data and padding. ``by_columns`` is as
    for ``max_pool``.
    """
    pool = _pool_by_columns if by_columns else _pool
    total = pool(x, window, layout, te.sum, const(0, x.dtype), "pool_sum")
    axes = axis_windows(window)
    positions = [layout.index_of(letter) for letter in window.spatial]
    counts = [_tap_counts(axis, x.shape[p], include_pad=count_include_pad)
              for axis, p in zip(axes, positions, strict=True)]
    fixed = math.prod(count for count in counts if isinstance(count, int))
    # Tables: the clamps and divisions of a count run once per window index, not once per result.
    tables = {p: _count_table(total.shape[p], count, x.dtype)
              for p, count in zip(positions, counts, strict=True) if not isinstance(count, int)}

    def element(*index: PrimExpr) -> PrimExpr:
        if not tables:
            return divide_by_count(total[index], const(fixed))
        taps: PrimExpr = const(fixed, x.dtype)
        for position, table in tables.items():
            taps = taps * table[index[position]]
        return total[index] / taps  # rounded once, like the reference

    return te.compute(total.shape, element, name="pool_avg")


TapCount = Callable[[PrimExpr], PrimExpr]


def _tap_counts(axis: AxisWindow, size: PrimExpr, *, include_pad: bool) -> int | TapCount:
    """The taps of a window along an axis; a function of its index if windows differ."""
    padded = axis.before or axis.after
    if axis.overhang(size) == 0 and (include_pad or not padded):
        return axis.taps
    return lambda index: axis.valid_taps(index, size, include_pad=include_pad)


def _count_table(windows: PrimExpr, count: TapCount, dtype: DType) -> te.Tensor:
    """The lookup table of taps per window along an axis."""
    return te.compute((windows,), lambda i: count(i).astype(dtype), name="pool_count",
                      role=te.StageRole.LOOKUP_TABLE)


def divide_by_count(total: PrimExpr, count: PrimExpr) -> PrimExpr:
    """``total / count``; a constant count becomes a multiplication, which is much cheaper."""
    fixed = int_value(count)
    if fixed is not None and total.dtype.is_float:
        return total * const(1.0 / fixed, total.dtype)
    return total / count.astype(total.dtype)


def _windows(
    x: te.Tensor, window: PoolWindow, layout: Layout, fill: PrimExpr
) -> tuple[tuple[AxisWindow, ...], list[int], te.Tensor, list[te.IterVar]]:
    """The windows and positions of the pooled axes, the padded data, and the reduction axes."""
    axes = axis_windows(window)
    positions = [layout.index_of(letter) for letter in window.spatial]
    around = _with_overhang(axes, [x.shape[p] for p in positions])
    taps = [te.reduce_axis(a.taps, name=f"k{letter.lower()}")
            for a, letter in zip(axes, window.spatial, strict=True)]
    return axes, positions, pad_spatial(x, layout, window.spatial, around, fill), taps


def _pool(
    x: te.Tensor, window: PoolWindow, layout: Layout, reducer: Callable[..., Any],
    fill: PrimExpr, name: str,
) -> te.Tensor:
    axes, positions, padded, taps = _windows(x, window, layout, fill)
    sizes = [x.shape[p] for p in positions]
    shape = list(x.shape)
    for axis, position, size in zip(axes, positions, sizes, strict=True):
        shape[position] = axis.count(size)

    def element(*index: PrimExpr) -> Any:
        source = list(index)
        for axis, position, k in zip(axes, positions, taps, strict=True):
            source[position] = index[position] * axis.stride + k.var * axis.step
        return reducer(padded[tuple(source)], taps)

    return te.compute(shape, element, name=name)


def _pool_by_columns(
    x: te.Tensor, window: PoolWindow, layout: Layout, reducer: Callable[..., Any],
    fill: PrimExpr, name: str,
) -> te.Tensor:
    """As ``_pool``, but separable: along all axes of the window except the last, then along that.

    A 3x3 window of stride 1 reads 3 + 3 instead of 9 elements per result.
    """
    axes, positions, padded, taps = _windows(x, window, layout, fill)
    sizes = [x.shape[p] for p in positions]
    shape = list(padded.shape)
    for axis, position, size in zip(axes[:-1], positions[:-1], sizes[:-1], strict=True):
        shape[position] = axis.count(size)

    def column(*index: PrimExpr) -> Any:
        source = list(index)
        for axis, position, k in zip(axes[:-1], positions[:-1], taps[:-1], strict=True):
            source[position] = index[position] * axis.stride + k.var * axis.step
        return reducer(padded[tuple(source)], taps[:-1])

    # The columns cover the padded width: neighbouring windows share those between them.
    columns = te.compute(shape, column, name="pool_columns")
    last, coord = axes[-1], positions[-1]

    def element(*index: PrimExpr) -> Any:
        source = list(index)
        source[coord] = index[coord] * last.stride + taps[-1].var * last.step
        return reducer(columns[tuple(source)], taps[-1:])

    result = [*shape[:coord], last.count(sizes[-1]), *shape[coord + 1:]]
    return te.compute(result, element, name=name)


def _with_overhang(axes: Sequence[AxisWindow], sizes: Sequence[PrimExpr]) -> tuple[int, ...]:
    """Padding before all axes, then after all axes, including the overhang of ``ceil_mode``."""
    before = [a.before for a in axes]
    after = [a.after + a.overhang(s) for a, s in zip(axes, sizes, strict=True)]
    return (*before, *after)


def global_max_pool(x: te.Tensor, layout: Layout, spatial: str) -> te.Tensor:
    """The maximum of each channel; spatial sizes become 1. Stage ``global_pool_max``."""
    return _global(x, layout, spatial, te.max, "global_pool_max")


def global_avg_pool(x: te.Tensor, layout: Layout, spatial: str) -> te.Tensor:
    """The mean of each channel; stages ``global_pool_sum`` and ``global_pool_avg``."""
    total = _global(x, layout, spatial, te.sum, "global_pool_sum")
    count = element_count(x.shape[layout.index_of(letter)] for letter in spatial)
    return te.compute(total.shape, lambda *i: divide_by_count(total[i], count),
                      name="global_pool_avg")


def _global(
    x: te.Tensor, layout: Layout, spatial: str, reducer: Callable[..., Any], name: str
) -> te.Tensor:
    taps = {layout.index_of(a): te.reduce_axis(x.shape[layout.index_of(a)], name=f"k{a.lower()}")
            for a in spatial}
    shape = [const(1) if p in taps else s for p, s in enumerate(x.shape)]

    def element(*index: PrimExpr) -> Any:
        source = [taps[p].var if p in taps else i for p, i in enumerate(index)]
        return reducer(x[tuple(source)], list(taps.values()))

    return te.compute(shape, element, name=name)
