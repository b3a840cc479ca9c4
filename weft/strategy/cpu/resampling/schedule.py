"""The schedule of resampling stages, whose indices and weights come from lookup tables.

Lookup tables are computed first, each once. Each resampling stage but the last is materialized; the
last is inlined into the loops of the output, together with the operators fused after it.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, inlined_body, is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.parallel import pays_in_parallel
from weft.strategy.cpu.elementwise.schedule import parallelize, schedule_loops, vectorize_innermost


def schedule_resampling(ctx: CpuContext) -> None:
    """Lookup tables first, then one loop nest per resampling stage; other stages are inlined."""
    outputs = {id(t.op) for t in ctx.outputs}
    ops = computes_below(ctx.outputs)
    materialized = {id(op) for op in ops
                    if id(op) in outputs or is_reduction(op) or _is_materialized(op)}
    last = _last_resampling(ops)
    if last is not None and id(last) not in outputs and not is_reduction(last):
        materialized.discard(id(last))
    for op in ops:
        if id(op) not in materialized:
            ctx.schedule[op.output(0)].compute_inline()
        elif is_reduction(op):
            _schedule_sum(ctx, op)
        elif op.role is not te.StageRole.LOOKUP_TABLE:
            body = inlined_body(op, lambda p: id(p) not in materialized)
            schedule_loops(ctx.schedule[op.output(0)], op.output(0), body, ctx.target)


def _is_materialized(op: te.ComputeOp) -> bool:
    return op.role in (te.StageRole.LOOKUP_TABLE, te.StageRole.RESAMPLING)


def _last_resampling(ops: list[te.ComputeOp]) -> te.ComputeOp | None:
    stages = [op for op in ops if op.role is te.StageRole.RESAMPLING]
    return stages[-1] if stages else None


def _schedule_sum(ctx: CpuContext, op: te.ComputeOp) -> None:
    """Vectorize the innermost data axis, with the reduction loops around the vector."""
    stage = ctx.schedule[op.output(0)]
    *outer, inner = op.axis
    around = vectorize_innermost(stage, inner, ctx.target.lanes(op.output(0).dtype))
    lanes = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    loops = [*outer, *around]
    stage.reorder(*loops, *op.reduce_axis, *lanes)
    if pays_in_parallel([op], ctx.target):
        parallelize(stage, loops)
