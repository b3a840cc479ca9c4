"""Gradients of pooling over windows of one to three axes.

Each tap of the window is a strided slice of the padded data.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import (
    cut_to,
    fixed_sizes,
    known_shape,
    scalar,
    spread_along,
    tensor_type,
    to_order,
)
from weft.topi.layout import Layout
from weft.topi.nn.conv import side_padding

_Tap = tuple[int, ...]


class _Windows:
    """The windows of one call over data in NCHW, padded so that each window is complete."""

    def __init__(self, call: Call) -> None:
        attrs: Any = call.attrs
        self.attrs = attrs
        self.spatial = attrs.window.spatial
        self.channels_first = "NC" + self.spatial
        self.axes = tuple(range(2, 2 + len(self.spatial)))
        self.data = to_order(call.args[0], attrs.layout, self.channels_first)
        shape = known_shape(self.data, call)
        self.sizes = fixed_sizes(shape[2:], call)
        result = known_shape(call, call)
        axis_of = Layout.parse(attrs.layout).index_of
        self.counts = fixed_sizes([result[axis_of(a)] for a in self.spatial], call)
        self.sides = side_padding(attrs.padding, len(self.spatial))
        self.first = tuple(before for before, _ in self.sides)
        # With ``ceil_mode``, the last window may end behind the padding.
        needed = [
            (count - 1) * stride + (size - 1) * dilation + 1
            for count, stride, size, dilation in zip(
                self.counts, attrs.strides, attrs.pool_size, attrs.dilation, strict=True
            )
        ]
        self.padded = tuple(
            max(n, size + before)
            for n, size, before in zip(needed, self.sizes, self.first, strict=True)
        )

    def taps(self) -> Iterator[_Tap]:
        along = (range(0, size * step, step) for size, step in
                 zip(self.attrs.pool_size, self.attrs.dilation, strict=True))
        return itertools.product(*along)

    def pad(self, x: Expr, fill: Constant) -> Expr:
        after = (p - f - s for p, f, s in zip(self.padded, self.first, self.sizes, strict=True))
        pads = ((0, 0), (0, 0), *zip(self.first, after, strict=True))
        return infer_expr(op.nn.pad(x, fill, pad_width=tuple(pads)), trust=True)

    def read(self, padded: Expr, tap: _Tap) -> Expr:
        """The elements that the tap reads in every window."""
        steps, counts = self.attrs.strides, self.counts
        end = tuple(t + (c - 1) * s + 1 for t, c, s in zip(tap, counts, steps, strict=True))
        cut = op.strided_slice(padded, begin=tap, end=end, strides=tuple(steps), axes=self.axes)
        return infer_expr(cut, trust=True)

    def write(self, values: Expr, tap: _Tap) -> Expr:
        """``values``, one per window, written to the positions of a tap in the padded data."""
        for i, axis in enumerate(self.axes):
            values = spread_along(values, axis, tap[i], self.attrs.strides[i], self.padded[i],
                           self.counts[i])
        return values

    def unpad(self, x: Expr) -> Expr:
        """The padded data without its padding, in the layout of the call."""
        for i, axis in enumerate(self.axes):
            x = op.strided_slice(x, begin=(self.first[i],), end=(self.padded[i],), axes=(axis,))
            x = cut_to(x, axis, self.sizes[i])
        return to_order(infer_expr(x, trust=True), self.channels_first, self.attrs.layout)


def max_pool_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The first tap equal to the maximum receives the gradient of its window."""
    windows = _Windows(call)
    dtype = tensor_type(call).dtype
    lowest = Constant(np.asarray(-np.inf, dtype.numpy))
    padded = windows.pad(windows.data, lowest)
    best, grad = (to_order(t, windows.attrs.layout, windows.channels_first) for t in (y, dy))
    total: Expr | None = None
    # False where the maximum is NaN: no tap equals it, so the window has no gradient to pass on.
    left = infer_expr(op.equal(best, best), trust=True)  # windows with a pending gradient
    for tap in windows.taps():
        won = op.logical_and(left, op.equal(windows.read(padded, tap), best))
        share = infer_expr(op.where(won, grad, scalar(0.0, grad)), trust=True)
        scattered = windows.write(share, tap)
        total = scattered if total is None else op.add(total, scattered)
        left = infer_expr(op.logical_and(left, op.logical_not(won)), trust=True)
    return [windows.unpad(total)] if total is not None else [dy]


def avg_pool_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Every tap receives an equal share of the gradient of its window."""
    windows = _Windows(call)
    grad = to_order(dy, windows.attrs.layout, windows.channels_first)
    counts = _tap_counts(windows)
    share = infer_expr(op.divide(grad, Constant(counts.astype(_grad_dtype(grad)))), trust=True)
    total: Expr | None = None
    for tap in windows.taps():
        scattered = windows.write(share, tap)
        total = scattered if total is None else op.add(total, scattered)
    return [windows.unpad(total)] if total is not None else [dy]


def _grad_dtype(grad: Expr) -> Any:
    return tensor_type(grad).dtype.numpy


def _tap_counts(windows: _Windows) -> np.ndarray:
    """The number of taps of each window that count: those in the data, or also in the padding."""
    attrs = windows.attrs
    along = []
    for i, (before, after) in enumerate(windows.sides):
        size = windows.sizes[i]
        low, high = (0, before + size + after) if attrs.count_include_pad else (before,
                                                                               before + size)
        starts = np.arange(windows.counts[i]) * attrs.strides[i]
        taps = starts[:, None] + np.arange(attrs.pool_size[i]) * attrs.dilation[i]
        along.append(((taps >= low) & (taps < high)).sum(axis=1))
    # At least 1, because the gradient is divided by it.
    return np.maximum(functools.reduce(operator.mul, np.ix_(*along)), 1)
