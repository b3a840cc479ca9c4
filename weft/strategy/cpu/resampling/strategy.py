"""The implementations of operators whose indices come from lookup tables."""

from __future__ import annotations

from collections.abc import Iterator

from weft import te
from weft.ir import Call, Family
from weft.strategy.analysis import computes_below, inlined_body, is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import (
    parallelize,
    pays_in_parallel,
    schedule_loops,
    vectorize_innermost,
)
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


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


@strategy(Family.RESAMPLING, target="cpu", complete=True)
def resampling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Lookup tables first, then one materialized stage per axis."""
    yield Implementation(f"{call.op}.cpu.resampling", schedule_resampling,
                         seconds=roofline_seconds(call, target))
