"""Which convolutions Winograd's algorithm applies to; the reasons for the others."""

from __future__ import annotations

from weft.ir.dtype import float32
from weft.strategy.cpu.common.blocking import block_for, channel_block, registers
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.target import CpuTarget
from weft.topi.nn.winograd import TAPS

# Registers that padded output channels must save: the cut is another pass over the result.
PADDING_LIMIT = 0.9


def why_not_winograd(problem: ConvProblem, target: CpuTarget) -> str | None:
    """The reason against F(m x m, 3 x 3), ``None`` if it applies.

    It takes 3 x 3 kernels in float32 that are known when the model is compiled, with stride and
    dilation 1 and one group, over NCHW images whose channels fill at least half a vector.
    """
    attrs, shape = problem.attrs, problem.shape
    if attrs.spatial != "HW":
        return f"{len(attrs.spatial)} spatial axes, not 2"
    if shape.taps != (TAPS, TAPS):
        return f"the kernel is {'x'.join(map(str, shape.taps))}, not 3x3"
    if attrs.groups != 1:
        return f"{attrs.groups} groups"
    if max(attrs.strides) != 1:
        return f"stride {max(attrs.strides)}"
    if max(attrs.dilation) != 1:
        return f"dilation {max(attrs.dilation)}"
    if problem.data.dtype != float32 or (attrs.out_dtype or float32) != float32:
        return f"dtype {problem.data.dtype}, not float32"
    if not problem.is_unblocked:
        return f"the layouts are {attrs.data_layout} and {attrs.kernel_layout}, not NCHW and OIHW"
    if not problem.is_constant:
        return "the kernel is computed at run time"
    if not problem.is_finite:
        return "the kernel has infinities or NaN, which its transform would spread"
    if not problem.has_fixed_channels:
        return "the channels have symbolic sizes"
    if shape.is_empty:
        return "an operand is empty"
    outputs = shape.outputs + channels_to_add(problem, target)
    if min(block_for(outputs, target), block_for(shape.inputs, target)) < _half_a_vector(target):
        return "blocks of channels fill less than half a vector"
    return None


def channels_to_add(problem: ConvProblem, target: CpuTarget) -> int:
    """How many output channels of zeros make whole vectors; 0 if that saves few registers.

    85 channels would run in blocks of 17, two registers each; 96 take six registers.
    """
    outputs, lanes = problem.shape.outputs, target.lanes(problem.shape.dtype)
    if outputs < lanes // 4:
        return 0
    block = channel_block(outputs, lanes)
    whole = -(-outputs // lanes)
    if whole > PADDING_LIMIT * (outputs // block) * registers(block, lanes):
        return 0
    return whole * lanes - outputs


def _half_a_vector(target: CpuTarget) -> int:
    return target.lanes(float32) // 2
