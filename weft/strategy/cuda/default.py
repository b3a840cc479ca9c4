"""The default schedule of operators without a strategy, derived from their computes."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.injective.schedule import schedule_elements, schedule_injective
from weft.strategy.cuda.machine_model import machine_model
from weft.strategy.cuda.reduction.schedule import schedule_reductions
from weft.strategy.registry import default_schedule
from weft.te import ExternOp


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


def schedule_computes(ctx: CudaContext) -> None:
    """A thread per element of each compute without a reduction, in launches of their own."""
    model = machine_model(ctx.target)
    for stage in list(ctx.schedule.stages):
        if isinstance(stage.op, te.ComputeOp) and not is_reduction(stage.op):
            schedule_elements(ctx.schedule, stage.tensors[0], stage.op.body, model)
