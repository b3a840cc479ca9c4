"""The default schedule of operators without a strategy, derived from their computes."""

from __future__ import annotations

from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.injective.schedule import schedule_injective
from weft.strategy.cuda.reduction.schedule import schedule_reductions
from weft.strategy.registry import default_schedule
from weft.te.tensor import ExternOp


@default_schedule(target="cuda")
def schedule_default(ctx: CudaContext) -> None:
    """The injective schedule, or the reduction schedule if a stage reduces.

    Extern bodies have hand-written loops and stay unchanged.
    """
    if any(isinstance(s.op, ExternOp) for s in ctx.schedule.stages):
        return
    if any(is_reduction(op) for op in computes_below(ctx.outputs)):
        schedule_reductions(ctx)
    else:
        schedule_injective(ctx)
