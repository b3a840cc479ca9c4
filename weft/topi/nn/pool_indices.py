"""Max pooling with indices, and the gradients that those indices select.

Data is (N, C, spatial axes…); a position is a row-major index within one channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import int32, int64
from weft.tir.expr import PrimExpr, all_of, as_prim, const, if_then_else, maximum, minimum
from weft.tir.row_major import ravel, unravel
from weft.topi.layout import Layout
from weft.topi.nn.adaptive_pool import EvenWindows
from weft.topi.nn.conv import pad_spatial
from weft.topi.nn.pool import AxisWindow, PoolWindow, axis_windows

_FIRST_SPATIAL = 2


def max_pool_indices(x: te.Tensor, window: PoolWindow) -> te.Tensor:
    """The position (int64) of the first maximum of each window; NaN exceeds every number.

    Stages ``data_pad`` (if padded), ``pool_winner`` (the flat index of its tap), ``pool_indices``.
    """
    axes, sizes = axis_windows(window), x.shape[_FIRST_SPATIAL:]
    ends = [a.after + a.overhang(s) for a, s in zip(axes, sizes, strict=True)]
    padded = pad_spatial(x, Layout.parse("NC" + window.spatial), window.spatial,
                         (*(a.before for a in axes), *ends), te.min_value(x.dtype))
    taps = [te.reduce_axis(a.taps, name=f"k{letter.lower()}")
            for a, letter in zip(axes, window.spatial, strict=True)]

    def winner(*index: PrimExpr) -> Any:
        coord = [i * a.stride + k.var * a.step
                 for i, a, k in zip(index[_FIRST_SPATIAL:], axes, taps, strict=True)]
        number = ravel([k.var for k in taps], [const(a.taps) for a in axes])
        return te.argmax((number.astype(int32), padded[(*index[:_FIRST_SPATIAL], *coord)]), taps)

    counts = [a.count(s) for a, s in zip(axes, sizes, strict=True)]
    winners = te.compute((*x.shape[:_FIRST_SPATIAL], *counts), winner, name="pool_winner")[0]

    def position(*index: PrimExpr) -> PrimExpr:
        numbers = unravel(winners[index].astype(int64), [a.taps for a in axes])
        positions = [_inside(a, i, k, s) for a, i, k, s
                  in zip(axes, index[_FIRST_SPATIAL:], numbers, sizes, strict=True)]
        return ravel(positions, sizes).astype(int64)

    return te.compute(winners.shape, position, name="pool_indices")


def _inside(axis: AxisWindow, index: PrimExpr, tap: PrimExpr, size: PrimExpr) -> PrimExpr:
    """The position of a tap; taps in the padding are clamped to the data.

    A padding tap wins only if all of the window is the smallest value of the dtype.
    """
    start = index * axis.stride - axis.before
    first = maximum((const(axis.step - 1) - start) // axis.step, 0)
    return minimum(start + maximum(tap, first) * axis.step, size - 1)


def adaptive_max_pool_indices(x: te.Tensor, counts: Sequence[int]) -> te.Tensor:
    """As ``max_pool_indices`` for the ``counts`` windows of adaptive pooling."""
    sizes = x.shape[_FIRST_SPATIAL:]
    windows = [EvenWindows(s, n) for s, n in zip(sizes, counts, strict=True)]
    taps = [te.reduce_axis(w.longest, name=f"k{i}") for i, w in enumerate(windows)]

    def winner(*index: PrimExpr) -> Any:
        spatial = index[_FIRST_SPATIAL:]
        # Taps beyond a shorter window repeat its last element, which is not the first maximum.
        offsets = [minimum(k.var, w.length(i) - 1)
                   for w, i, k in zip(windows, spatial, taps, strict=True)]
        positions = [w.start(i) + k for w, i, k in zip(windows, spatial, offsets, strict=True)]
        return te.argmax((ravel(positions, sizes).astype(int64),
                          x[(*index[:_FIRST_SPATIAL], *positions)]), taps)

    shape = (*x.shape[:_FIRST_SPATIAL], *map(as_prim, counts))
    winners = te.compute(shape, winner, name="pool_winner")[0]
    return te.compute(shape, lambda *i: winners[i], name="pool_indices")


def max_pool_indices_grad(
    grad: te.Tensor, indices: te.Tensor, window: PoolWindow, sizes: Sequence[int]
) -> te.Tensor:
    """The gradient of max pooling for data of spatial ``sizes``, from the stored indices.

    Every element gathers from the windows that contain it; stage ``pool_grad``.
    """
    axes = axis_windows(window)

    # Gathering instead of scattering: elements are independent, so that they run in parallel and
    # add in a fixed order.
    def element(*index: PrimExpr) -> PrimExpr:
        here = ravel(index[_FIRST_SPATIAL:], [const(s) for s in sizes]).astype(int64)
        total: PrimExpr = const(0, grad.dtype)
        for tap in itertools.product(*(range(a.taps) for a in axes)):
            inside, coord = _window_of(axes, index, tap, grad.shape)
            chosen = if_then_else(indices[coord].astype(int64).equal(here), grad[coord],
                                  const(0, grad.dtype))
            # Guarded, not selected: outside of the result neither index nor gradient may be read.
            total = total + if_then_else(all_of(*inside), chosen, const(0, grad.dtype))
        return total

    return te.compute((*grad.shape[:_FIRST_SPATIAL], *map(as_prim, sizes)), element,
                      name="pool_grad")


def _window_of(
    axes: Sequence[AxisWindow], index: tuple[PrimExpr, ...], tap: Sequence[int],
    shape: Sequence[PrimExpr],
) -> tuple[list[PrimExpr], tuple[PrimExpr, ...]]:
    """The window in which an element is a given tap, and the condition that it exists."""
    inside, coord = [], list(index)
    for p, (axis, k) in enumerate(zip(axes, tap, strict=True), start=_FIRST_SPATIAL):
        offset = index[p] + (axis.before - k * axis.step)
        coord[p] = offset // axis.stride
        inside += [offset >= 0, (offset % axis.stride).equal(0), coord[p] < shape[p]]
    return inside, tuple(coord)
