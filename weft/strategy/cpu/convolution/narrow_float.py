"""Convolutions of narrow floats: computed in float32, or by bfloat16 dot product instructions.

No CPU adds up products of 16-bit floats in 16 bits as fast as it does in float32, nor would the
sums be worth much. The operands are widened ahead of the convolution instead: weights when the
model is compiled, data in the kernel that makes it. So every schedule for float32 serves all
types. Depthwise convolutions read each element so few times that they widen it themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir.dtype import DType, float32
from weft.ir.expr import Call, Constant, Expr
from weft.ir.types import TensorType, Type
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.convolution.cost import ConvSize, blocked_cycles, dot_cycles, plain_cycles
from weft.strategy.cpu.depthwise.blocked import is_depthwise
from weft.strategy.cpu.dot_product.convolution import conv_plan
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget


def is_narrow(type_: Type | None) -> bool:
    """Whether the type is that of a tensor of floats of at most 16 bits."""
    return isinstance(type_, TensorType) and type_.dtype.is_narrow_float


def conv_in_float32(call: Call, types: Sequence[Type]) -> tuple[Call, list[Type]] | None:
    """The convolution of both operands in float32, and their types; ``None`` for one that is not
    of narrow floats, or widens them itself.
    """
    data, kernel = types
    if not (isinstance(data, TensorType) and isinstance(kernel, TensorType)):
        return None
    if not is_narrow(data) or not is_narrow(kernel) or is_depthwise(call):
        return None
    attrs = attrs_of(call, ConvAttrs).replace(out_dtype=None)
    args = tuple(widened(arg) for arg in call.args)
    result = call.checked_type
    if isinstance(result, TensorType):
        result = TensorType(result.shape, float32)
    wide = call.replace(args=args, attrs=attrs, checked_type=result)
    return wide, [TensorType(t.shape, float32) for t in (data, kernel)]


def conv_by_dot_products(call: Call, types: Sequence[Type], target: CpuTarget) -> Call | None:
    """The convolution with sums in float32 that a dot product instruction takes as it is;
    ``None`` where the CPU has none for these operands, the kernel is not known yet, or rows are
    so short that most lanes would be empty. The estimate counts a change of layout before and
    behind: the data is wanted as it is written, where float32 may be in blocks.
    """
    data, kernel = types
    result = call.checked_type
    if not isinstance(call.args[1], Constant) or not isinstance(result, TensorType):
        return None
    attrs = attrs_of(call, ConvAttrs).replace(out_dtype=float32)
    if attrs.kernel_layout != "OIHW":
        return None
    summed = call.replace(attrs=attrs, checked_type=TensorType(result.shape, float32))
    plan = conv_plan(summed, (data, kernel), target)
    if plan is None or not (isinstance(data, TensorType) and isinstance(kernel, TensorType)):
        return None
    size = ConvSize.of(attrs, data, kernel)
    block = block_for(size.outputs, target)
    in_float32 = min(plain_cycles(size, target), blocked_cycles(size, size.outputs, block, target))
    changed = size.elements + math.prod(data.concrete_shape)
    conversion = machine_model(target).conversion_cycles(float32.itemsize)
    by_dots = dot_cycles(size, plan.group, target) + conversion * changed
    return summed if by_dots < in_float32 else None


def widened(expr: Expr) -> Expr:
    """A tensor in float32; a constant at once."""
    if isinstance(expr, Constant):
        return Constant(expr.data.astype(np.float32), span=expr.span)
    wide: Expr = op.cast(expr, dtype=float32, span=expr.span)
    return wide


def rounded(expr: Expr, call: Call) -> Expr:
    """``expr``, of float32, in the type of the result of ``call``."""
    type_ = call.checked_type
    dtype = type_.dtype if isinstance(type_, TensorType) else DType.of("float32")
    return expr if dtype == float32 else op.cast(expr, dtype=dtype, span=call.span)
