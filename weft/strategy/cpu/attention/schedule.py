"""The schedule of attention kernels: their loops are hand-written, their operands are not."""

from __future__ import annotations

from weft import te
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import schedule_loops
from weft.strategy.implementation import compute_of
from weft.te.tensor import ExternOp


def schedule_attention(ctx: CpuContext) -> None:
    """Compute the operands (conversions, masks) in loops of the injective family, before the body.

    The body reads whole operands, so they cannot be inlined into it.
    """
    body = ctx.anchor.op
    for tensor in body.inputs if isinstance(body, ExternOp) else ():
        if isinstance(tensor.op, te.ComputeOp):
            schedule_loops(ctx.schedule[tensor], tensor, compute_of(tensor).body, ctx.target)
