"""Which algorithms can run a convolution, and the reasons of those that cannot."""

from __future__ import annotations

from weft.ir.dtype import DType, float32, int32
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.dot_product.instruction import DotInstruction, select_dot_instruction
from weft.strategy.cpu.machine_model import has_masks
from weft.target import CpuTarget
from weft.topi.layout import Layout

RUNTIME_KERNEL = "the kernel is computed at run time"
EMPTY = "an operand is empty"
SYMBOLIC_CHANNELS = "the channels or the kernel have symbolic sizes"


def plan_channels_last_dots(problem: ConvProblem, target: CpuTarget) -> DotInstruction | str:
    """The dot product instruction for an ungrouped convolution of adjacent channels, or the reason
    why there is none.
    """
    attrs, data, kernel = problem.attrs, problem.data, problem.kernel
    if attrs.groups != 1:
        return f"{attrs.groups} groups"
    plan = select_dot_instruction(data.dtype, kernel.dtype, target, keeps_right=True)
    if plan is None:
        return f"the CPU has no dot product instruction for {data.dtype} by {kernel.dtype}"
    reason = _why_other_result(problem, plan)
    if reason is not None:
        return reason
    if not problem.has_fixed_image:
        return "the size of the image is symbolic"
    return EMPTY if problem.shape.is_empty else plan


def plan_dots(problem: ConvProblem, target: CpuTarget) -> DotInstruction | str:
    """The dot product instruction for an ungrouped 2-D convolution of NCHW images, or the reason
    why there is none.

    The kernel may be in any layout: it is packed when the model is compiled.
    """
    attrs, data, kernel = problem.attrs, problem.data, problem.kernel
    if attrs.groups != 1:
        return f"{attrs.groups} groups"
    if (attrs.data_layout, attrs.result_layout) != ("NCHW", "NCHW"):
        return f"the data layout is {attrs.data_layout}, not NCHW"
    plan = select_dot_instruction(kernel.dtype, data.dtype, target, keeps_left=True)
    if plan is None:
        return f"the CPU has no dot product instruction for {data.dtype} by {kernel.dtype}"
    reason = _why_other_result(problem, plan)
    return reason or (EMPTY if problem.shape.is_empty else plan)


def _why_other_result(problem: ConvProblem, plan: DotInstruction) -> str | None:
    """The reason, if the result is not in the dtype of the accumulators."""
    wanted = int32 if plan.accumulator.is_int else float32
    result = problem.attrs.out_dtype or problem.data.dtype
    return None if result == wanted else f"the result is {result}, not {wanted}"


def why_not_unblocked_depthwise(target: CpuTarget) -> str | None:
    """The reason, if any. Rows of the image are vectors, masked beyond the border."""
    if has_masks(target):
        return None
    return "the CPU does not mask vector loads and stores (AVX512-VL, AVX512-BW)"


def depthwise_blocks_of(problem: ConvProblem, target: CpuTarget) -> list[int]:
    """``block_of``, and all channels where dot products may compute the convolutions around.

    Those read the channels of a position as a single block.
    """
    channels, lanes = problem.shape.outputs, target.lanes(problem.shape.dtype)
    block = block_of(channels, problem, target)
    blocks = [] if block is None else [block]
    dots = select_dot_instruction(DType.of("uint8"), DType.of("int8"), target, keeps_right=True)
    if dots is not None and channels % lanes == 0 and channels != block:
        blocks.append(channels)
    return blocks


def block_of(channels: int, problem: ConvProblem, target: CpuTarget) -> int | None:
    """The channels in a block; ``None`` if no block fills a vector at least in part.

    Lanes along the row of an image are better filled then.
    """
    block = block_for(channels, target, str(problem.shape.dtype))
    return block if block >= target.lanes(problem.shape.dtype) // 4 else None


def has_blocked_result(problem: ConvProblem) -> bool:
    """Whether the result is in a layout such as NCHW16c."""
    layout = Layout.parse(problem.attrs.result_layout)
    return layout.name.startswith(problem.unblocked_data) and layout.factor_of("C") > 1
