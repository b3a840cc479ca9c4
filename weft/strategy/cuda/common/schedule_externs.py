"""The computes around bodies that are written as thread blocks."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.injective.schedule import schedule_elements
from weft.strategy.cuda.machine_model import machine_model


def schedule_computes(ctx: CudaContext) -> None:
    """A thread per element of each compute without a reduction, in launches of their own."""
    model = machine_model(ctx.target)
    for stage in list(ctx.schedule.stages):
        if isinstance(stage.op, te.ComputeOp) and not is_reduction(stage.op):
            schedule_elements(ctx.schedule, stage.tensors[0], stage.op.body, model)
