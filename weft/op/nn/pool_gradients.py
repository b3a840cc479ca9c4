"""Gradients of pooling over windows of one to three axes.

Each tap of the window is a strided slice of the padded data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, Constant, DType, Expr, const, dims_equal, infer_expr, may_be_at_least
from weft.op.gradients import (
    known_shape,
    scalar,
    size_value,
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
        self.sizes = shape[2:]
        result = known_shape(call, call)
        axis_of = Layout.parse(attrs.layout).index_of
        self.counts = tuple(result[axis_of(a)] for a in self.spatial)
        self.sides = side_padding(attrs.padding, len(self.spatial))
        self.first = tuple(before for before, _ in self.sides)
        # With ``ceil_mode``, the last window may end behind the padding.
        self.spans = tuple((size - 1) * step for size, step in
                           zip(attrs.pool_size, attrs.dilation, strict=True))
        self.padded = tuple(
            size + before + after + (stride - 1 if attrs.ceil_mode else 0)
            for size, (before, after), stride in
            zip(self.sizes, self.sides, attrs.strides, strict=True)
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
        for i in range(len(self.axes)):
            padded = infer_expr(self._read_along(padded, i, tap[i]), trust=True)
        return padded

    def _read_along(self, x: Expr, i: int, tap: int) -> Expr:
        """One element for each window along spatial axis ``i``."""
        axis, count, stride = self.axes[i], self.counts[i], self.attrs.strides[i]
        if isinstance(count, int):
            return op.strided_slice(x, begin=(tap,), end=(tap + (count - 1) * stride + 1,),
                                    strides=(stride,), axes=(axis,))
        end = self.padded[i] - self.spans[i] + tap
        if may_be_at_least(end, 0):
            cut = infer_expr(op.strided_slice(x, begin=(tap,), end=(end,), strides=(stride,),
                                              axes=(axis,)), trust=True)
            if dims_equal(tensor_type(cut).shape[axis], count):
                return cut
        # The size of a slice is another expression than that of the pool, so they cannot meet.
        places = op.add(self.starts(i), const(tap, "int64"))
        return op.take(x, places, axis=axis)

    def starts(self, i: int) -> Expr:
        """The int64 positions in the padded data at which the windows along an axis begin."""
        ones = op.ones(shape=(self.counts[i],), dtype="int64")
        numbers = op.cumsum(ones, axis=0, exclusive=True)
        return op.multiply(numbers, const(self.attrs.strides[i], "int64"))

    def write(self, values: Expr, tap: _Tap) -> Expr:
        """``values``, one per window, written to the positions of a tap in the padded data."""
        for i, axis in enumerate(self.axes):
            values = spread_along(values, axis, tap[i], self.attrs.strides[i], self.padded[i],
                           self.counts[i])
        return values

    def unpad(self, x: Expr) -> Expr:
        """The padded data without its padding, in the layout of the call."""
        for i, axis in enumerate(self.axes):
            end = self.first[i] + self.sizes[i]
            x = op.strided_slice(x, begin=(self.first[i],), end=(end,), axes=(axis,))
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
    share = infer_expr(op.divide(grad, _tap_counts(windows, grad)), trust=True)
    total: Expr | None = None
    for tap in windows.taps():
        scattered = windows.write(share, tap)
        total = scattered if total is None else op.add(total, scattered)
    return [windows.unpad(total)] if total is not None else [dy]


def _tap_counts(windows: _Windows, grad: Expr) -> Expr:
    """The number of taps of each window that count: those in the data, or also in the padding.

    It broadcasts to ``grad``, the gradient of the result. At least 1, because the gradient is
    divided by it.
    """
    attrs, dtype = windows.attrs, tensor_type(grad).dtype
    total: Expr = const(1, dtype)
    for i, (before, after) in enumerate(windows.sides):
        size = windows.sizes[i]
        low, high = (0, before + size + after) if attrs.count_include_pad else (before,
                                                                               before + size)
        starts = windows.starts(i)
        trailing = len(windows.sides) - 1 - i
        if trailing:
            starts = op.expand_dims(starts, axis=1, num_newaxis=trailing)
        along: Expr = const(0, dtype)
        for tap in range(attrs.pool_size[i]):
            at = op.add(starts, const(tap * attrs.dilation[i], "int64"))
            counted = op.logical_and(op.greater_equal(at, const(low, "int64")),
                                     op.less(at, size_value(high, DType.of("int64"))))
            along = op.add(along, op.cast(counted, dtype=dtype))
        total = op.multiply(total, along)
    return infer_expr(op.maximum(total, const(1, dtype)), trust=True)
