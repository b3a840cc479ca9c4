"""Pooling over windows: every tap of the window is a strided slice of the padded data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import scalar, tensor_type
from weft.topi.nn.conv2d import full_padding
from weft.transform.gradient_rules.convolution import to_order
from weft.transform.gradient_rules.shape import cut_to, place, static_shape

_Tap = tuple[int, int]


class _Windows:
    """The windows of one call over data in NCHW, padded so that each of them is whole."""

    def __init__(self, call: Call) -> None:
        attrs: Any = call.attrs
        self.attrs = attrs
        self.data = to_order(call.args[0], attrs.layout, "NCHW")
        self.shape = static_shape(self.data, call)
        result = static_shape(call, call)
        self.counts = tuple(result[attrs.layout.index(a)] for a in "HW")
        top, left, _, _ = full_padding(attrs.padding)
        self.first = (top, left)
        needed = [
            (count - 1) * stride + (size - 1) * dilation + 1
            for count, stride, size, dilation in zip(
                self.counts, attrs.strides, attrs.pool_size, attrs.dilation, strict=True
            )
        ]
        self.padded = tuple(
            max(n, size + before)
            for n, size, before in zip(needed, self.shape[2:], self.first, strict=True)
        )

    def taps(self) -> Iterator[_Tap]:
        rows, columns = self.attrs.pool_size
        down, right = self.attrs.dilation
        return ((i * down, j * right) for i in range(rows) for j in range(columns))

    def pad(self, x: Expr, fill: Constant) -> Expr:
        after = (p - f - s for p, f, s in zip(self.padded, self.first, self.shape[2:], strict=True))
        pads = ((0, 0), (0, 0), *zip(self.first, after, strict=True))
        return infer_expr(op.nn.pad(x, fill, pad_width=tuple(pads)), trust=True)

    def read(self, padded: Expr, tap: _Tap) -> Expr:
        """What the tap of every window sees."""
        steps, counts = self.attrs.strides, self.counts
        end = tuple(t + (c - 1) * s + 1 for t, c, s in zip(tap, counts, steps, strict=True))
        cut = op.strided_slice(padded, begin=tap, end=end, strides=tuple(steps), axes=(2, 3))
        return infer_expr(cut, trust=True)

    def write(self, values: Expr, tap: _Tap) -> Expr:
        """``values``, one for each window, at the places of a tap in the padded data."""
        for axis in (0, 1):
            values = place(values, axis + 2, tap[axis], self.attrs.strides[axis],
                           self.padded[axis], self.counts[axis])
        return values

    def unpad(self, x: Expr) -> Expr:
        """The padded data without its padding, in the layout of the call."""
        for axis in (0, 1):
            x = op.strided_slice(x, begin=(self.first[axis],), end=(self.padded[axis],),
                                 axes=(axis + 2,))
            x = cut_to(x, axis + 2, self.shape[axis + 2])
        return to_order(infer_expr(x, trust=True), "NCHW", self.attrs.layout)


def _max_pool2d(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The first tap that equals the maximum takes the gradient of its window."""
    windows = _Windows(call)
    dtype = tensor_type(call).dtype
    lowest = Constant(np.asarray(-np.inf, dtype.numpy))
    padded = windows.pad(windows.data, lowest)
    best, grad = (to_order(t, windows.attrs.layout, "NCHW") for t in (y, dy))
    total: Expr | None = None
    left = infer_expr(op.equal(best, best), trust=True)  # windows whose gradient is not given yet
    for tap in windows.taps():
        won = op.logical_and(left, op.equal(windows.read(padded, tap), best))
        share = infer_expr(op.where(won, grad, scalar(0.0, grad)), trust=True)
        placed = windows.write(share, tap)
        total = placed if total is None else op.add(total, placed)
        left = infer_expr(op.logical_and(left, op.logical_not(won)), trust=True)
    return [windows.unpad(total)] if total is not None else [dy]


def _avg_pool2d(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Every tap takes an equal share of the gradient of its window."""
    windows = _Windows(call)
    grad = to_order(dy, windows.attrs.layout, "NCHW")
    counts = _tap_counts(windows)
    share = infer_expr(op.divide(grad, Constant(counts.astype(grad_dtype(grad)))), trust=True)
    total: Expr | None = None
    for tap in windows.taps():
        placed = windows.write(share, tap)
        total = placed if total is None else op.add(total, placed)
    return [windows.unpad(total)] if total is not None else [dy]


def grad_dtype(grad: Expr) -> Any:
    return tensor_type(grad).dtype.numpy


def _tap_counts(windows: _Windows) -> np.ndarray:
    """How many taps of each window count: those in the data, or in data and padding."""
    attrs = windows.attrs
    along = []
    top, left, bottom, right = full_padding(attrs.padding)
    for axis, (before, after) in enumerate(((top, bottom), (left, right))):
        size = windows.shape[axis + 2]
        low, high = (0, before + size + after) if attrs.count_include_pad else (before,
                                                                               before + size)
        starts = np.arange(windows.counts[axis]) * attrs.strides[axis]
        taps = starts[:, None] + np.arange(attrs.pool_size[axis]) * attrs.dilation[axis]
        along.append(((taps >= low) & (taps < high)).sum(axis=1))
    return np.maximum(along[0][:, None] * along[1][None, :], 1)


RULES: dict[str, Callable[[Call, Expr, Expr], list[Expr]]] = {
    "nn.avg_pool2d": _avg_pool2d,
    "nn.max_pool2d": _max_pool2d,
}
