"""The default schedule of operators without a strategy, derived from their computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import schedule_injective, schedule_loops
from weft.strategy.cpu.reduction.schedule import schedule_reductions
from weft.strategy.registry import default_schedule
from weft.te import ExternOp, input_tensors


@default_schedule(target="cpu")
def schedule_default(ctx: CpuContext) -> None:
    """The injective schedule, or the reduction schedule if a stage reduces.

    Extern bodies have hand-written loops and stay unchanged. What they read and what reads them is
    materialized stage by stage; rows that vectors would lengthen stay scalar, because the bodies
    read dense arrays.
    """
    computes, has_extern = _stages(ctx.outputs)
    if has_extern:
        results = {id(t.op) for t in ctx.outputs}
        for op in computes:
            if (id(op) in results or len(op.axis) == 1) and not is_reduction(op):
                schedule_loops(ctx.schedule[op.output(0)], op.output(0), op.body, ctx.target)
    elif any(is_reduction(op) for op in computes):
        schedule_reductions(ctx)
    else:
        schedule_injective(ctx)


def _stages(outputs: Sequence[te.Tensor]) -> tuple[list[te.ComputeOp], bool]:
    """The computes below ``outputs``, and whether there is an extern body among them."""
    pending, seen, computes, has_extern = [t.op for t in outputs], set[int](), [], False
    while pending:
        op = pending.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        has_extern |= isinstance(op, ExternOp)
        if isinstance(op, te.ComputeOp):
            computes.append(op)
        pending.extend(t.op for t in input_tensors(op))
    return computes, has_extern
