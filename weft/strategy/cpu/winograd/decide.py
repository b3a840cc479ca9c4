"""The choice of Winograd's algorithm for a convolution, and the blocking of what it becomes."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir import ANY, Call, TensorType, float32, is_static
from weft.op.nn.conv import ConvAlgorithm
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.cpu.common.blocking import block_for, channel_block, registers
from weft.strategy.cpu.convolution.cost import direct_roofline_cycles, multiply_add_cycles
from weft.strategy.cpu.convolution.plan import ConvPlan, Offer, candidate
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.winograd.cost import (
    WinogradPlan,
    WinogradShape,
    cold_cycles,
    plan_winograd,
)
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import side_padding
from weft.topi.nn.window import window_count
from weft.topi.nn.winograd import NCHW, OIHW, TAPS, TILES
from weft.transform.layout.typical_images import typical_image_shape

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


ALGORITHMS = {2: ConvAlgorithm.WINOGRAD_F2, 4: ConvAlgorithm.WINOGRAD_F4}
# How much faster than a direct convolution at the roofline Winograd must be: less does not pay for
# weights up to four times as large, and for larger rounding errors.
MINIMUM_SPEEDUP = 1 / 0.8


def offer_winograd(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3), if they are clearly faster than a direct convolution."""
    reason = why_not_winograd(problem, target)
    for tile in TILES:
        if reason is None:
            yield _offer_tile(problem, tile, target)
        else:
            yield Rejected(ALGORITHMS[tile], reason)


def _offer_tile(problem: ConvProblem, tile: int, target: CpuTarget) -> Offer:
    shape = problem.shape
    added = channels_to_add(problem, target)
    shape = shape.with_outputs(shape.outputs + added)
    block = block_for(shape.outputs, target)
    rows, columns = shape.extents
    blocked = WinogradShape(tile, shape.batch, -(-rows // tile), -(-columns // tile), shape.inputs,
                            shape.outputs // block, block, shape.dtype, shape.has_open_row,
                            shape.has_open_height)
    cycles = cold_cycles(blocked, plan_winograd(blocked, target), target)
    # The bound, not an estimate: Winograd must be faster than any direct convolution.
    direct = direct_roofline_cycles(shape, target)
    if cycles * MINIMUM_SPEEDUP >= direct:
        return Rejected(ALGORITHMS[tile], f"{direct / cycles:.2f} times the speed of a direct "
                        f"convolution at the roofline, not {MINIMUM_SPEEDUP} times",
                        machine_model(target).seconds(cycles))
    attrs = problem.attrs
    plan = ConvPlan(ALGORITHMS[tile], attrs.data_layout, attrs.kernel_layout, attrs.result_layout,
                    added_outputs=added, winograd_tile=tile)
    return candidate(plan, cycles, target)


# -- nn.winograd_conv2d ------------------------------------------------------------------------


@decides("nn.winograd_conv2d", target="cpu")
def decide_winograd_conv2d(call: Call, target: CpuTarget) -> Decision[WinogradPlan | None] | None:
    """The blocking of a convolution whose weights are transformed already, in its own layouts.

    The plan is ``None`` for the default schedule; the decision is ``None`` if only run time
    determines a size.
    """
    data, weight = (argument.checked_type for argument in call.args)
    if not (isinstance(data, TensorType) and isinstance(weight, TensorType)):
        return None
    if ANY in (*data.shape, *weight.shape):
        return None
    attrs, model = attrs_of(call, WinogradConv2DAttrs), machine_model(target)
    shape = winograd_shape(attrs, data, weight)
    layout = Layout.parse(attrs.out_layout or attrs.data_layout)
    candidates: list[Candidate[WinogradPlan | None]] = []
    rejected = []
    if not _has_fixed_channels(attrs, data, weight):
        rejected.append(Rejected("blocked", "the channels have symbolic sizes"))
    elif not (layout.name.startswith("NCHW") and shape.block > 1):
        rejected.append(Rejected("blocked", f"the layout of the result is {layout}"))
    if not rejected:
        plan = plan_winograd(shape, target)
        candidates.append(Candidate("blocked", model.seconds(plan.total_cycles), plan))
    else:
        cycles = shape.multiply_adds * multiply_add_cycles(model)
        candidates.append(Candidate("generic", model.seconds(cycles), None))
    return choose(candidates, rejected)


def winograd_shape(
    attrs: WinogradConv2DAttrs, data: TensorType, weight: TensorType
) -> WinogradShape:
    """The sizes of a convolution with transformed weights; symbols count as typical sizes."""
    images = Layout.parse(attrs.data_layout)
    batch, channels, *sizes = convert_shape(
        images, NCHW, typical_image_shape(data.shape, images.index_of("N")))
    outputs, *_ = convert_shape(Layout.parse(attrs.kernel_layout), OIHW,
                                typical_image_shape(weight.shape))
    block = Layout.parse(attrs.out_layout or attrs.data_layout).factor_of("C")
    tile_rows, tile_columns = (
        -(-window_count(size + before + after, TAPS, 1) // attrs.tile)
        for size, (before, after) in zip(sizes, side_padding(attrs.padding, 2), strict=True))
    return WinogradShape(attrs.tile, batch, tile_rows, tile_columns, channels, outputs // block,
                         block, data.dtype, *(not isinstance(data.shape[images.index_of(a)], int)
                                              for a in "WH"))


def _has_fixed_channels(
    attrs: WinogradConv2DAttrs, data: TensorType, weight: TensorType
) -> bool:
    channels = data.shape[Layout.parse(attrs.data_layout).index_of("C")]
    return is_static(weight) and isinstance(channels, int)
