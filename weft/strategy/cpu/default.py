"""The schedule of operators that have no strategy of their own, found from their computes."""

from __future__ import annotations

from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cpu.injective import schedule_injective
from weft.strategy.cpu.reduction import schedule_reductions
from weft.strategy.implementation import ScheduleContext
from weft.strategy.registry import family
from weft.te.tensor import ExternOp


@family("default", target="cpu")
def schedule_default(ctx: ScheduleContext) -> None:
    """Injective where nothing is reduced, else the reduction family.

    Bodies that are loops already, which no group fuses, stay as they are written.
    """
    if any(isinstance(t.op, ExternOp) for t in ctx.outputs):
        return
    if any(is_reduction(op) for op in computes_below(ctx.outputs)):
        schedule_reductions(ctx)
    else:
        schedule_injective(ctx)
