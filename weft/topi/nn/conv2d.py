"""Two-dimensional convolution over any layout of data, kernel and result.

One definition serves all layouts: the blocks of the kernel decide how the reduction is split,
and equal blocks of data and kernel index each other without division.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, const, int_value
from weft.topi.layout import BlockedIndex, Layout, convert_shape
from weft.topi.nn.pad import pad

NCHW = Layout.parse("NCHW")
OIHW = Layout.parse("OIHW")


def full_padding(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from one, two (height, width) or four numbers."""
    if len(padding) == 1:
        return (padding[0],) * 4
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    top, left, bottom, right = padding
    return top, left, bottom, right


def pad_spatial(
    x: te.Tensor, layout: Layout, padding: Sequence[int], value: PrimExpr
) -> te.Tensor:
    """``x`` padded along H and W."""
    top, left, bottom, right = full_padding(padding)
    widths = [(0, 0)] * layout.ndim
    widths[layout.index_of("H")] = (top, bottom)
    widths[layout.index_of("W")] = (left, right)
    return pad(x, widths, value, name="data_pad")


def conv2d(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: Layout,
    kernel_layout: Layout,
    out_layout: Layout,
    out_dtype: DType,
) -> te.Tensor:
    """Cross-correlation of ``data`` (axes N, C, H, W) with ``kernel`` (axes O, I, H, W).

    The last stage is the sum, with ``reduce_axis``

    - ``(ic, kh, kw)`` where the kernel's I is not split (tags ``conv2d_nchw``, ``conv2d_nhwc``,
      ``conv2d``);
    - ``(ic_outer, kh, kw, ic_inner)`` where it is (tag ``conv2d_nchwc``);
    - ``(kh, kw)`` for a depthwise convolution, one input channel for each group (tags
      ``depthwise_conv2d``, ``depthwise_conv2d_nchwc``).

    Where the data is padded, a stage ``data_pad`` goes before it.
    """
    out_channels, group_size, kernel_height, kernel_width = convert_shape(
        kernel_layout, OIHW, kernel.shape
    )
    batch, channels, height, width = convert_shape(data_layout, NCHW, data.shape)
    top, left, bottom, right = full_padding(padding)
    extents = [
        (size + before + after - (taps - 1) * step - 1) // stride + 1
        for size, before, after, taps, step, stride in (
            (height, top, bottom, kernel_height, dilation[0], strides[0]),
            (width, left, right, kernel_width, dilation[1], strides[1]),
        )
    ]
    padded = pad_spatial(data, data_layout, padding, const(0, data.dtype))
    depthwise = _is_depthwise(channels, group_size, out_channels, groups)
    reduction = _Reduction(None if depthwise else group_size, kernel_height, kernel_width,
                           kernel_layout)
    grouping = _Grouping(groups, int_value(out_channels), int_value(group_size),
                         depthwise=depthwise)

    def element(*index: PrimExpr) -> Any:
        out = out_layout.blocked_indices(index)
        source = {
            "N": out["N"],
            "C": grouping.input_channel(out["C"], reduction.channel),
            "H": out["H"] * strides[0] + reduction.kh * dilation[0],
            "W": out["W"] * strides[1] + reduction.kw * dilation[1],
        }
        taps = {"O": out["C"], "I": reduction.channel, "H": reduction.kh, "W": reduction.kw}
        value = padded[data_layout.indices(source)].astype(out_dtype)
        weight = kernel[kernel_layout.indices(taps)].astype(out_dtype)
        return te.sum(value * weight, reduction.axes)

    shape = convert_shape(NCHW, out_layout, (batch, out_channels, *extents))
    tag = _tag(data_layout, out_layout, kernel_layout, depthwise=depthwise)
    return te.compute(shape, element, name=tag.partition("_n")[0], tag=tag)


class _Reduction:
    """The reduction axes of a convolution, the input channels split as the kernel's I is.

    ``channels`` is ``None`` for a depthwise convolution, which does not reduce over them.
    """

    def __init__(self, channels: PrimExpr | None, height: PrimExpr, width: PrimExpr,
                 layout: Layout) -> None:
        kh, kw = te.reduce_axis(height, name="kh"), te.reduce_axis(width, name="kw")
        self.kh, self.kw = kh.var, kw.var
        self.channel: Any = const(0)
        self.axes: list[te.IterVar] = [kh, kw]
        block = layout.factor_of("I")
        if channels is None:
            return
        if layout.block_index_of("I") is None:
            ic = te.reduce_axis(channels, name="ic")
            self.channel, self.axes = ic.var, [ic, kh, kw]
            return
        outer = te.reduce_axis(channels // block, name="ic_outer")
        inner = te.reduce_axis(block, name="ic_inner")
        self.channel = BlockedIndex(outer.var, inner.var, block)
        self.axes = [outer, kh, kw, inner]


class _Grouping:
    """Which input channels an output channel sees."""

    def __init__(self, groups: int, out_channels: int | None, group_size: int | None, *,
                 depthwise: bool) -> None:
        if groups > 1 and (out_channels is None or group_size is None):
            raise LoweringError("a grouped convolution needs a kernel of fixed size")
        self.groups = groups
        self.outputs = (out_channels or groups) // groups
        self.inputs = group_size or 1
        self.depthwise = depthwise

    def input_channel(self, out: Any, channel: Any) -> Any:
        """The channel of the data from the output channel and the channel within the group."""
        if self.depthwise:
            return out
        if self.groups == 1:
            return channel
        inputs = self.inputs
        first = self._group(out) * inputs
        if isinstance(channel, BlockedIndex):
            if inputs % channel.factor == 0:
                outer = self._group(out) * (inputs // channel.factor) + channel.outer
                return BlockedIndex(outer, channel.inner, channel.factor)
            return first + channel.value
        return first + channel

    def _group(self, out: Any) -> PrimExpr:
        outputs = self.outputs
        if isinstance(out, BlockedIndex):
            if outputs % out.factor == 0:
                return out.outer // (outputs // out.factor)
            return out.value // outputs
        return out // outputs


def _is_depthwise(channels: PrimExpr, group_size: PrimExpr, out_channels: PrimExpr,
                  groups: int) -> bool:
    return (groups > 1 and int_value(group_size) == 1 and int_value(channels) == groups
            and int_value(out_channels) == groups)


def _tag(data: Layout, out: Layout, kernel: Layout, *, depthwise: bool) -> str:
    base = "depthwise_conv2d" if depthwise else "conv2d"
    if kernel.factor_of("O") > 1 or out.factor_of("C") > 1:
        return f"{base}_nchwc"
    if depthwise:
        return base
    names = {"NCHW": "conv2d_nchw", "NHWC": "conv2d_nhwc"}
    return names.get(data.name, base) if data == out else base
