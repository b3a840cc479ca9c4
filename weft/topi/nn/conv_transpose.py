"""Transposed convolution: every element of the data adds a scaled kernel to the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, all_of, const, if_then_else
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import SPATIAL_AXES, at_least_one, data_axes, side_padding


def transposed_kernel_axes(spatial: str) -> Layout:
    """The unblocked layout of kernels: ``IOHW`` for the spatial axes ``HW``."""
    return Layout.parse("IO" + spatial)


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: Layout,
    kernel_layout: Layout,
    out_layout: Layout,
    out_dtype: DType,
) -> te.Tensor:
    """The gradient of a convolution with respect to its data, as one compute.

    Stage ``conv2d_transpose`` (or the name for another rank): each element of the result sums the
    taps that meet an element of the data. Taps between two elements (stride) or outside of the data
    are skipped instead of multiplied by zero, which would make NaN of an infinite tap.
    """
    spatial = SPATIAL_AXES[len(strides)]
    inputs, group_outputs, *taps = convert_shape(
        kernel_layout, transposed_kernel_axes(spatial), kernel.shape
    )
    per_group = at_least_one(group_outputs)
    batch, _, *sizes = convert_shape(data_layout, data_axes(spatial), data.shape)
    sides = side_padding(padding, len(spatial))
    extents = [
        (size - 1) * stride - before - after + (tap - 1) * step + 1 + extra
        for size, stride, (before, after), tap, step, extra in zip(
            sizes, strides, sides, taps, dilation, output_padding, strict=True
        )
    ]
    ic = te.reduce_axis(inputs // groups, name="ic")
    over = [te.reduce_axis(tap, name=f"k{a.lower()}") for a, tap in zip(spatial, taps, strict=True)]

    def element(*index: PrimExpr) -> Any:
        out = {a: getattr(i, "value", i) for a, i in out_layout.blocked_indices(index).items()}
        group, o = _split(out["C"], groups, per_group)
        channel = ic.var if groups == 1 else group * (inputs // groups) + ic.var
        source, inside = {"N": out["N"], "C": channel}, []
        for a, k, step, stride, (before, _), size in zip(
            spatial, over, dilation, strides, sides, sizes, strict=True
        ):
            distance = out[a] + before - k.var * step
            source[a] = distance // stride
            inside += [distance >= 0, (distance % stride).equal(0), source[a] < size]
        tap = {"I": channel, "O": o} | {a: k.var for a, k in zip(spatial, over, strict=True)}
        value, weight = data[data_layout.indices(source)], kernel[kernel_layout.indices(tap)]
        scaled = value.astype(out_dtype) * weight.astype(out_dtype)
        return te.sum(if_then_else(all_of(*inside), scaled, const(0, out_dtype)), [ic, *over])

    shape = convert_shape(data_axes(spatial), out_layout, (batch, group_outputs * groups, *extents))
    name = f"conv{len(spatial)}d_transpose"
    return te.compute(shape, element, name=name)


def _split(
    channel: PrimExpr, groups: int, outputs: int | PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The group of an output channel, and its number in the group."""
    if groups == 1:
        return const(0), channel
    return channel // outputs, channel % outputs
