"""Computes whose indices come from small tables: resampling, sampling at positions.

Lookup tables are computed first, each once. Each resampling stage but the last is materialized; the
last is inlined into the loops of the output, together with the operators fused after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.strategy.analysis import computes_below, inlined_body, is_reduction, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.injective import parallelize, schedule_loops, vectorize_innermost
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


def schedule_staged(ctx: CpuContext) -> None:
    """Tables first, then one nest for each stage, the rest inlined."""
    outputs = {id(t.op) for t in ctx.outputs}
    ops = computes_below(ctx.outputs)
    kept = {id(op) for op in ops if id(op) in outputs or is_reduction(op) or _is_kept(op)}
    last = _last_stage(ops)
    if last is not None and id(last) not in outputs and not is_reduction(last):
        kept.discard(id(last))
    for op in ops:
        if id(op) not in kept:
            ctx.schedule[op.output(0)].compute_inline()
        elif is_reduction(op):
            _schedule_sum(ctx, op)
        elif op.role is not te.StageRole.LOOKUP_TABLE:
            body = inlined_body(op, lambda p: id(p) not in kept)
            schedule_loops(ctx.schedule[op.output(0)], op.output(0), body, ctx.target)


def _is_kept(op: te.ComputeOp) -> bool:
    return op.role in (te.StageRole.LOOKUP_TABLE, te.StageRole.RESAMPLING)


def _last_stage(ops: list[te.ComputeOp]) -> te.ComputeOp | None:
    stages = [op for op in ops if op.role is te.StageRole.RESAMPLING]
    return stages[-1] if stages else None


def _schedule_sum(ctx: CpuContext, op: te.ComputeOp) -> None:
    """Lanes along the innermost data axis, the sum around them."""
    stage = ctx.schedule[op.output(0)]
    *outer, inner = op.axis
    around = vectorize_innermost(stage, inner, ctx.target.lanes(op.output(0).dtype))
    lanes = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    loops = [*outer, *around]
    stage.reorder(*loops, *op.reduce_axis, *lanes)
    if work_of(op) >= PARALLEL_THRESHOLD:
        parallelize(stage, loops)


def _staged(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    del target
    yield Implementation(f"{getattr(call.op, 'name', 'image')}.cpu.staged", schedule_staged)


for _name in (
    "image.crop_and_resize", "image.grid_sample", "image.resize1d", "image.resize2d",
    "image.resize3d", "nn.deformable_conv2d", "nn.upsampling", "nn.upsampling3d",
):  # fmt: skip
    strategy(_name, target="cpu", complete=True)(_staged)
