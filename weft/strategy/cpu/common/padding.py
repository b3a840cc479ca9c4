"""Padding before a windowed operator: a vectorized copy into a buffer with a border."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.parallel import pays_in_parallel
from weft.strategy.cpu.elementwise.schedule import parallelize, vectorize_innermost
from weft.te.walk import loads_of


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
        if op is not pad and op is not ctx.anchor.op:
            ctx.schedule[op.output(0)].compute_inline()
    if pad is None:
        return
    stage = ctx.schedule[pad.output(0)]
    *outer, inner = pad.axis
    loops = [*outer, *vectorize_innermost(stage, inner, ctx.target.lanes(pad.output(0).dtype))]
    if pays_in_parallel([pad], ctx.target):
        parallelize(stage, loops)
