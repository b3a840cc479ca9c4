"""The default schedule of operators without a strategy, derived from their computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir import Call
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.build_tensors import tensors_of_call
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import schedule_injective, schedule_loops
from weft.strategy.cpu.reduction.decide import ReductionAlgorithm
from weft.strategy.cpu.reduction.schedule import schedule_reductions
from weft.strategy.registry import default_schedule
from weft.strategy.space import Knob
from weft.target import CpuTarget
from weft.te import ExternOp, input_tensors


def default_knobs(call: Call, target: CpuTarget) -> tuple[Knob, ...]:
    """What the default schedule leaves open; 0 and ``auto`` stand for its own choice."""
    del target
    vectors = Knob.of("vectors", (0, 1, 2, 4, 8), 0)
    if not any(isinstance(t.op, te.ComputeOp) and is_reduction(op)
               for t in tensors_of_call(call) for op in computes_below((t,))):
        return (vectors,)
    return (vectors, Knob.of("loops", ("auto", *ReductionAlgorithm), "auto"),
            Knob.of("height", (0, 1, 2, 3, 4, 5, 6, 8), 0),
            Knob.of("partials", (0, 1, 2, 4, 8), 0))


@default_schedule(target="cpu", knobs=default_knobs)
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
                schedule_loops(ctx.schedule[op.output(0)], op.output(0), op.body, ctx.target,
                               int(ctx.knobs.get("vectors", 0)))
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
