"""Adaptive pooling: a given number of windows of nearly equal size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value
from weft.topi.layout import Layout
from weft.topi.nn.pool import divide_by_count


@dataclass(frozen=True, slots=True, eq=False)
class EvenWindows:
    """``count`` windows over ``size`` elements, window ``i`` from floor(i * size / count) to
    ceil((i + 1) * size / count); adjacent windows may share an element.
    """

    size: PrimExpr
    count: int

    @property
    def is_regular(self) -> bool:
        """Whether all windows have the same length and do not overlap."""
        size = int_value(self.size)
        return size is not None and size % self.count == 0

    @property
    def longest(self) -> PrimExpr:
        """The length of the longest window; an upper bound for dynamic sizes."""
        if self.is_regular:
            return self.size // self.count
        size = int_value(self.size)
        if size is None:
            return (self.size + (self.count - 1)) // self.count + 1
        lengths = (-(-(i + 1) * size // self.count) - i * size // self.count
                   for i in range(self.count))
        return const(max(lengths))

    def start(self, i: PrimExpr) -> PrimExpr:
        return i * (self.size // self.count) if self.is_regular else i * self.size // self.count

    def length(self, i: PrimExpr) -> PrimExpr:
        if self.is_regular:
            return self.size // self.count
        return ((i + 1) * self.size + (self.count - 1)) // self.count - self.start(i)


def adaptive_max_pool(
    x: te.Tensor, counts: Sequence[int], layout: Layout, spatial: str
) -> te.Tensor:
    """The largest element of each window."""
    return _reduce(x, counts, layout, spatial, te.max, te.min_value(x.dtype), "adaptive_pool_max")


def adaptive_avg_pool(
    x: te.Tensor, counts: Sequence[int], layout: Layout, spatial: str
) -> te.Tensor:
    """The mean of each window; stages ``adaptive_pool_sum`` and ``adaptive_pool_avg``."""
    total = _reduce(x, counts, layout, spatial, te.sum, const(0, x.dtype), "adaptive_pool_sum")
    windows = _windows(x, counts, layout, spatial)

    def element(*index: PrimExpr) -> PrimExpr:
        taps: PrimExpr = const(1)
        for position, window in windows.items():
            taps = taps * window.length(index[position])
        return divide_by_count(total[index], taps)

    return te.compute(total.shape, element, name="adaptive_pool_avg")


def _windows(
    x: te.Tensor, counts: Sequence[int], layout: Layout, spatial: str
) -> dict[int, EvenWindows]:
    """The windows of each pooled axis, by the position of the axis."""
    positions = [layout.index_of(letter) for letter in spatial]
    return {p: EvenWindows(x.shape[p], n) for p, n in zip(positions, counts, strict=True)}


def _reduce(
    x: te.Tensor, counts: Sequence[int], layout: Layout, spatial: str,
    reducer: Callable[..., Any], neutral: PrimExpr, name: str,
) -> te.Tensor:
    windows = _windows(x, counts, layout, spatial)
    taps = {p: te.reduce_axis(w.longest, name=f"k{p}") for p, w in windows.items()}

    def element(*index: PrimExpr) -> Any:
        coord = list(index)
        inside = []
        for p, window in windows.items():
            coord[p] = window.start(index[p]) + taps[p].var
            # Regular windows all have ``longest`` taps: their reduction needs no guard.
            if not window.is_regular:
                inside.append(taps[p].var < window.length(index[p]))
        value: PrimExpr = x[tuple(coord)]
        value = if_then_else(all_of(*inside), value, neutral) if inside else value
        return reducer(value, list(taps.values()))

    shape = [windows[p].count if p in windows else s for p, s in enumerate(x.shape)]
    return te.compute(shape, element, name=name)
