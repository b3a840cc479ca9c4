"""Grey-scale dilation: the maximum of image plus structuring element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.tir.expr import PrimExpr
from weft.topi.layout import Layout
from weft.topi.nn.conv import pad_spatial, side_padding
from weft.topi.nn.window import window_count, window_span


def dilation2d(
    data: te.Tensor, weight: te.Tensor, *, strides: Sequence[int], padding: Sequence[int],
    dilations: Sequence[int], data_layout: Layout, kernel_layout: Layout,
) -> te.Tensor:
    """Data in any image layout, kernel IHW; stages ``data_pad`` (if padded) and ``dilation2d``."""
    taps = {a: te.reduce_axis(weight.shape[kernel_layout.index_of(a)], name=f"k{a.lower()}")
            for a in "HW"}
    padded = pad_spatial(data, data_layout, "HW", padding, te.min_value(data.dtype))
    steps = dict(zip("HW", zip(strides, dilations, strict=True), strict=True))
    shape = list(data.shape)
    for letter, (before, after) in zip("HW", side_padding(padding, 2), strict=True):
        axis, (stride, dilation) = data_layout.index_of(letter), steps[letter]
        span = window_span(taps[letter].extent, dilation)
        shape[axis] = window_count(shape[axis] + (before + after), span, stride)

    def element(*index: PrimExpr) -> Any:
        at = data_layout.blocked_indices(index)
        source: dict[str, PrimExpr] = {"N": at["N"], "C": at["C"]}
        for letter, (stride, dilation) in steps.items():
            source[letter] = at[letter] * stride + taps[letter].var * dilation
        position = {"I": at["C"], **{letter: k.var for letter, k in taps.items()}}
        value = padded[data_layout.indices(source)] + weight[kernel_layout.indices(position)]
        return te.max(value, list(taps.values()))

    return te.compute(shape, element, name="dilation2d")
