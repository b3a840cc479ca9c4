"""Transposed convolution: every element of the data puts a scaled kernel into the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import SPATIAL_AXES, data_axes, side_padding


def transposed_kernel_axes(spatial: str) -> Layout:
    """The plain layout of kernels: ``IOHW`` for the spatial axes ``HW``."""
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
    """The gradient of a convolution with regard to its data, as a compute of its own.

    Stages ``data_dilate`` (the data, its elements ``strides`` apart with zeros between and
    around) and ``conv2d_transpose`` (a convolution of it with the kernel turned round).
    """
    spatial = SPATIAL_AXES[len(strides)]
    inputs, group_outputs, *taps = convert_shape(
        kernel_layout, transposed_kernel_axes(spatial), kernel.shape
    )
    per_group = _per_group(groups, inputs, group_outputs)
    batch, _, *sizes = convert_shape(data_layout, data_axes(spatial), data.shape)
    spans = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    sides = side_padding(padding, len(spatial))
    extents = [
        (size - 1) * stride - before - after + span + extra
        for size, stride, (before, after), span, extra in zip(
            sizes, strides, sides, spans, output_padding, strict=True
        )
    ]
    dilated = _dilated(data, data_layout, spatial, strides,
                       [span - 1 - before for span, (before, _) in zip(spans, sides, strict=True)],
                       [e + span - 1 for e, span in zip(extents, spans, strict=True)])
    ic = te.reduce_axis(inputs // groups, name="ic")
    over = [te.reduce_axis(tap, name=f"k{a.lower()}") for a, tap in zip(spatial, taps, strict=True)]

    def element(*index: PrimExpr) -> Any:
        out = {a: getattr(i, "value", i) for a, i in out_layout.blocked_indices(index).items()}
        group, o = _split(out["C"], groups, per_group[1])
        channel = ic.var if groups == 1 else group * per_group[0] + ic.var
        places = [out[a] + k.var * step for a, k, step in zip(spatial, over, dilation, strict=True)]
        turned = {a: tap - 1 - k.var for a, k, tap in zip(spatial, over, taps, strict=True)}
        weight = kernel[kernel_layout.indices({"I": channel, "O": o, **turned})]
        value = dilated[(out["N"], channel, *places)]
        return te.sum(value.astype(out_dtype) * weight.astype(out_dtype), [ic, *over])

    shape = convert_shape(data_axes(spatial), out_layout, (batch, group_outputs * groups, *extents))
    name = f"conv{len(spatial)}d_transpose"
    return te.compute(shape, element, name=name, tag=name)


def _dilated(
    data: te.Tensor, layout: Layout, spatial: str, strides: Sequence[int],
    first: Sequence[PrimExpr], wide: Sequence[PrimExpr],
) -> te.Tensor:
    """(N, C, ``wide``) with the data from ``first`` on, ``strides`` apart, and zeros elsewhere."""
    batch, channels, *sizes = convert_shape(layout, data_axes(spatial), data.shape)

    def spread(n: PrimExpr, c: PrimExpr, *place: PrimExpr) -> PrimExpr:
        source: dict[str, PrimExpr] = {"N": n, "C": c}
        inside = []
        for letter, i, start, stride, size in zip(spatial, place, first, strides, sizes,
                                                  strict=True):
            position = i - start
            inside += [position >= 0, (position % stride).equal(0), position // stride < size]
            source[letter] = position // stride
        return if_then_else(all_of(*inside), data[layout.indices(source)], const(0, data.dtype))

    return te.compute((batch, channels, *wide), spread, name="data_dilate", tag="injective")


def _per_group(groups: int, inputs: PrimExpr, outputs: PrimExpr) -> tuple[int, int]:
    """Input and output channels of one group."""
    fixed_inputs, fixed_outputs = int_value(inputs), int_value(outputs)
    if groups == 1:
        return 0, 0
    if fixed_inputs is None or fixed_outputs is None:
        raise LoweringError("a grouped convolution needs a kernel of fixed size")
    return fixed_inputs // groups, fixed_outputs


def _split(channel: PrimExpr, groups: int, outputs: int) -> tuple[PrimExpr, PrimExpr]:
    """The group of an output channel, and its number in the group."""
    if groups == 1:
        return const(0), channel
    divisor = max(outputs, 1)  # a kernel without outputs has no channel to ask for
    return channel // divisor, channel % divisor
