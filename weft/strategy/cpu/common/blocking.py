"""Blocks of channels (the vector axis of convolutions and of packed GEMM weights), and padding."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import (
    parallelize,
    pays_in_parallel,
    vectorize_innermost,
)
from weft.target import CpuTarget
from weft.te import loads_of

MAX_BLOCK = 64


def channel_block(channels: int, lanes: int) -> int:
    """The block of ``channels`` that wastes the fewest vector lanes.

    A block need not be a power of two: 24 channels are one and a half AVX-512 registers, which
    beats three blocks of 8. Ties go to the block nearest to one register, because small blocks
    leave more freedom to tile. Channels without a good divisor stay one block.
    """
    candidates = [b for b in range(1, min(channels, MAX_BLOCK) + 1) if channels % b == 0]
    return min(candidates, key=lambda b: (registers(b, lanes) / b, abs(b - lanes)))


def registers(block: int, lanes: int) -> int:
    """Vector registers that one block of accumulators occupies.

    The remainder after full registers is split into powers of two: with 16 lanes, 24 elements are
    16 + 8 (two registers), 12 are 8 + 4 (two) and 3 are 2 + 1 (two).
    """
    full, rest = divmod(block, lanes)
    return full + rest.bit_count()


def block_for(channels: int, target: CpuTarget, dtype: str = "float32") -> int:
    """``channel_block`` for the vector width of ``target`` and ``dtype``."""
    return channel_block(channels, target.lanes(dtype))


def padding_of(ctx: CpuContext) -> te.ComputeOp | None:
    """The stage that pads the anchor's input; ``None`` without padding."""
    for op in computes_below((ctx.anchor,)):
        if op.role is te.StageRole.PADDING:
            return op
    return None


def pads_innermost(pad: te.ComputeOp) -> bool:
    """Whether the contiguous axis is padded."""
    return any(load.producer.shape[-1] is not pad.axis[-1].extent for load in loads_of(pad.body))


def schedule_padding(ctx: CpuContext) -> None:
    """Materialize the padded input before the anchor; inline all other producers of operands."""
    pad = padding_of(ctx)
    for op in computes_below((ctx.anchor,)):
        if op is not pad and op is not ctx.anchor.op and op.role is not te.StageRole.PACKED_B:
            ctx.schedule[op.output(0)].compute_inline()
    if pad is None:
        return
    stage = ctx.schedule[pad.output(0)]
    *outer, inner = pad.axis
    loops = [*outer, *vectorize_innermost(stage, inner, ctx.target.lanes(pad.output(0).dtype))]
    if pays_in_parallel([pad], ctx.target):
        parallelize(stage, loops)
