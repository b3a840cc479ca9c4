"""Deformable convolution with a mask (Zhu et al., 2019), of ONNX's and torchvision's operators."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.node import NodeBase
from weft.frontend.common.typed import shape_in, tensor_type
from weft.ir import Expr
from weft.ir.shape import dim_floordiv


def deformable_conv2d(
    node: NodeBase, data: Expr, offset: Expr, kernel: Expr, mask: Expr | None, *, groups: int,
    deformable_groups: int, **window: Any,
) -> Expr:
    """Data NCHW, kernel OIHW of fixed sizes; the mask (N, deformable groups * taps, H, W).

    With a mask, a convolution whose kernels have a single 1 gives the samples of each channel and
    tap; they are multiplied by the mask and mixed as by a convolution with 1 x 1 kernels.
    """
    attrs = {**window, "deformable_groups": deformable_groups}
    if mask is None:
        return node.call(op.nn.deformable_conv2d, data, offset, kernel, groups=groups, **attrs)
    outputs, inputs, *taps = tensor_type(kernel).concrete_shape
    channels, count = inputs * groups, math.prod(taps)
    one = arrays.spread(arrays.eye(count), (channels, count, count)).reshape(
        channels * count, 1, *taps)
    samples = node.call(op.nn.deformable_conv2d, data, offset,
                        node.constant(one, tensor_type(data).dtype), groups=channels, **attrs)
    batch, _, *sizes = shape_in(samples)
    split = node.reshape(samples, (batch, deformable_groups,
                                   dim_floordiv(channels, deformable_groups), count, *sizes))
    factors = node.reshape(mask, (batch, deformable_groups, 1, count, *sizes))
    weighted = node.reshape(node.call(op.multiply, split, factors),
                            (batch, channels * count, *sizes))
    return node.call(op.nn.conv2d, weighted,
                     node.reshape(kernel, (outputs, inputs * count, 1, 1)), groups=groups)
