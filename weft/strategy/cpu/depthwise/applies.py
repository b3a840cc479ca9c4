"""Which convolutions are depthwise."""

from __future__ import annotations

from weft.ir.types import TensorType
from weft.op.nn.conv import ConvAttrs
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import kernel_axes


def has_depthwise_kernel(attrs: ConvAttrs, kernel: TensorType) -> bool:
    """Whether each group has one input channel and one output channel, by the kernel alone."""
    outputs, group_inputs, *_ = convert_shape(
        Layout.parse(attrs.kernel_layout), kernel_axes(attrs.spatial), kernel.shape)
    return attrs.groups > 1 and group_inputs == 1 and outputs == attrs.groups
