"""Convolutions by fewer products, output channels in whole registers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr
from weft.ir.passes import PassContext
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.blocking import channel_block, registers
from weft.strategy.cpu.convolution.narrow_float import (
    conv_by_dot_products,
    conv_in_float32,
    rounded,
)
from weft.strategy.cpu.winograd.applies import use_winograd
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize
from weft.target import CpuTarget

WORTH = 0.9  # of the registers: the channels that are left out cost a pass over the result


@legalize("nn.conv2d", target="cpu")
def legalize_conv2d(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """Winograd convolution where it pays; narrow floats in float32, or by dot products.

    The channels are padded with zeros where they make no blocks: 85 channels would run in blocks
    of 17, two registers each; 96 take six. What is padded is left out of the result.
    """
    wide = conv_in_float32(call, types)
    if wide is None:
        return _by_fewer_products(call, types, context)
    found = _by_fewer_products(*wide, context)
    if found is None and isinstance(context.target, CpuTarget):
        found = conv_by_dot_products(call, types, context.target)
    return rounded(found or wide[0], call)


def _legalize_others(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:  # noqa: ARG001
    """Signals and volumes of narrow floats in float32."""
    wide = conv_in_float32(call, types)
    return None if wide is None else rounded(wide[0], call)


for _name in ("nn.conv1d", "nn.conv3d"):
    legalize(_name, target="cpu")(_legalize_others)


def _by_fewer_products(
    call: Call, types: Sequence[Type], context: PassContext
) -> Expr | None:
    data, weight = types
    if not (isinstance(data, TensorType) and isinstance(weight, TensorType)):
        return None
    if not isinstance(context.target, CpuTarget) or not isinstance(call.args[1], Constant):
        return None
    if not (is_static(data) and is_static(weight)):
        return None
    more = _channels_to_fill(attrs_of(call, ConvAttrs), weight, context.target)
    if not more:
        return use_winograd(call, types, context)
    outputs = weight.concrete_shape[0]
    wide = _filled(call, outputs + more, call.args[1].data)
    shape = (outputs + more, *weight.concrete_shape[1:])
    chosen = use_winograd(wide, [data, TensorType(shape, weight.dtype)], context)
    if chosen is None:
        return None
    return op.strided_slice(chosen, begin=(0,), end=(outputs,), axes=(1,), span=call.span)


def _channels_to_fill(attrs: ConvAttrs, weight: TensorType, target: CpuTarget) -> int:
    """How many output channels to add, 0 where that saves little."""
    outputs, lanes = weight.concrete_shape[0], target.lanes(str(weight.dtype))
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if attrs.groups != 1 or plain != ("NCHW", "OIHW", "NCHW") or outputs < lanes // 4:
        return 0
    block = channel_block(outputs, lanes)
    whole = -(-outputs // lanes)
    if whole > WORTH * (outputs // block) * registers(block, lanes):
        return 0
    return whole * lanes - outputs


def _filled(call: Call, outputs: int, kernel: np.ndarray) -> Call:
    """The convolution with ``outputs`` channels, those beyond the kernel's all zero."""
    weight = np.zeros((outputs, *kernel.shape[1:]), kernel.dtype)
    weight[:kernel.shape[0]] = kernel
    attrs = attrs_of(call, ConvAttrs).replace(channels=outputs)
    return call.replace(args=(call.args[0], Constant(weight, span=call.args[1].span)),
                        attrs=attrs, checked_type=None)
