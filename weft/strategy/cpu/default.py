"""The default schedule of operators without a strategy, derived from their computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import schedule_injective
from weft.strategy.cpu.reduction.schedule import schedule_reductions
from weft.strategy.registry import default_schedule
from weft.te import ExternOp, input_tensors


@default_schedule(target="cpu")
def schedule_default(ctx: CpuContext) -> None:
    """The injective schedule, or the reduction schedule if a stage reduces.

    Extern bodies have hand-written loops and stay unchanged. So does a kernel in which an extern
    body reads computed tensors: these must be materialized as a whole.
    """
    if any(isinstance(t.op, ExternOp) for t in ctx.outputs) or _feeds_an_extern_body(ctx.outputs):
        return
    if any(is_reduction(op) for op in computes_below(ctx.outputs)):
        schedule_reductions(ctx)
    else:
        schedule_injective(ctx)


def _feeds_an_extern_body(outputs: Sequence[te.Tensor]) -> bool:
    """Whether an extern body reads the result of a compute."""
    pending, seen = [t.op for t in outputs], set[int]()
    while pending:
        op = pending.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        sources = [t.op for t in input_tensors(op)]
        if isinstance(op, ExternOp) and any(isinstance(s, te.ComputeOp) for s in sources):
            return True
        pending.extend(sources)
    return False
