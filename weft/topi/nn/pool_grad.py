"""Gradients of pooling: every element gathers from the windows that contain it."""

from __future__ import annotations

import itertools
from typing import Any

from weft import te
from weft.ir.dtype import int32
from weft.tir.expr import PrimExpr, all_of, const, if_then_else
from weft.tir.row_major import ravel
from weft.topi.layout import Layout
from weft.topi.nn.conv import pad_spatial
from weft.topi.nn.pool import PoolWindow, axis_windows, divide_by_count


def max_pool_grad(
    grad: te.Tensor, x: te.Tensor, window: PoolWindow, layout: Layout
) -> te.Tensor:
    """The first tap that equals the maximum of its window receives the window's gradient.

    Stages ``data_pad``, ``pool_winner`` (the flat index of that tap) and ``pool_grad``.
    """
    axes, positions = axis_windows(window), _positions(window, layout)
    ends = [a.after + a.overhang(x.shape[p]) for a, p in zip(axes, positions, strict=True)]
    padded = pad_spatial(x, layout, window.spatial, (*(a.before for a in axes), *ends),
                         te.min_value(x.dtype))
    taps = [te.reduce_axis(a.taps, name=f"k{letter.lower()}")
            for a, letter in zip(axes, window.spatial, strict=True)]

    def first_of_largest(*index: PrimExpr) -> Any:
        source = list(index)
        for axis, position, k in zip(axes, positions, taps, strict=True):
            source[position] = index[position] * axis.stride + k.var * axis.step
        number = ravel([k.var for k in taps], [a.taps for a in axes])
        return te.argmax((number.astype(int32), padded[tuple(source)]), taps)

    winner = te.compute(grad.shape, first_of_largest, name="pool_winner")[0]

    def share(coord: tuple[PrimExpr, ...], tap: PrimExpr) -> PrimExpr:
        return if_then_else(winner[coord].equal(tap.astype(int32)), grad[coord],
                            const(0, grad.dtype))

    return _gather(grad, x, window, layout, share)


def avg_pool_grad(
    grad: te.Tensor, x: te.Tensor, window: PoolWindow, layout: Layout, *, count_include_pad: bool
) -> te.Tensor:
    """Every tap receives an equal share of its window's gradient; stage ``pool_grad``."""
    axes, positions = axis_windows(window), _positions(window, layout)

    def share(coord: tuple[PrimExpr, ...], _: PrimExpr) -> PrimExpr:
        count: PrimExpr = const(1)
        for axis, p in zip(axes, positions, strict=True):
            count = count * axis.valid_taps(coord[p], x.shape[p], include_pad=count_include_pad)
        return divide_by_count(grad[coord], count)

    return _gather(grad, x, window, layout, share)


def _positions(window: PoolWindow, layout: Layout) -> list[int]:
    return [layout.index_of(letter) for letter in window.spatial]


def _gather(
    grad: te.Tensor, x: te.Tensor, window: PoolWindow, layout: Layout, share: Any
) -> te.Tensor:
    """The sum of ``share(window, tap)`` over the windows that contain an element."""
    axes, positions = axis_windows(window), _positions(window, layout)

    # The number of taps is fixed, so that gathering needs no search: an element is tap k of at most
    # one window.
    def element(*index: PrimExpr) -> PrimExpr:
        total: PrimExpr = const(0, grad.dtype)
        for tap in itertools.product(*(range(a.taps) for a in axes)):
            coord = list(index)
            inside = []
            for axis, p, k in zip(axes, positions, tap, strict=True):
                offset = index[p] + (axis.before - k * axis.step)
                coord[p] = offset // axis.stride
                inside += [offset >= 0, (offset % axis.stride).equal(0),
                           coord[p] < grad.shape[p]]
            number = ravel(tap, [a.taps for a in axes])
            total = total + if_then_else(all_of(*inside), share(tuple(coord), number),
                                         const(0, grad.dtype))
        return total

    return te.compute(x.shape, element, name="pool_grad")
