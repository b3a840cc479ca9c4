"""The implementations of operators whose indices come from lookup tables."""

from __future__ import annotations

from collections.abc import Iterator

from weft import te
from weft.ir import Call, Family, SizeRange, SymDim, TensorType, float64
from weft.strategy.analysis import computes_below, inlined_body, is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import (
    parallelize,
    pays_in_parallel,
    schedule_loops,
    vectorize_innermost,
)
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.machine_model import has_masks
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.strategy.variants import SizeCondition, Variant, factors_of, variants_for
from weft.target import CpuTarget
from weft.topi.layout import Layout


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
        elif op.role is te.StageRole.LOOKUP_TABLE:
            vectorize_innermost(ctx.schedule[op.output(0)], op.axis[-1], ctx.target.lanes(float64),
                                masks=has_masks(ctx.target))
        else:
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


@variants_for(Family.RESAMPLING, target="cpu")
def resampling_variants(call: Call, target: CpuTarget) -> Iterator[Variant]:  # noqa: ARG001
    """Images that shrink, whose rows are chosen first: most of their elements are never read.

    Rows and columns of symbolic sizes are both larger than those of the result.
    """
    from weft.op.image.resize import ResizeAttrs  # of models that have it

    attrs, source = call.attrs, call.args[0].checked_type
    if not isinstance(attrs, ResizeAttrs) or not isinstance(source, TensorType) or attrs.scales:
        return
    layout = Layout.parse(attrs.layout)
    conditions: dict[SymDim, SizeCondition] = {}
    for letter, size in zip(attrs.spatial, attrs.size, strict=True):
        given = source.shape[layout.index_of(letter)]
        if not isinstance(size, int) or len(attrs.size) < 2:
            return
        if isinstance(given, SymDim):
            if len(factors_of(given)) != 1:
                return
            least = max(size + 1, conditions[given].sizes.low if given in conditions else 0)
            conditions[given] = SizeCondition(given, SizeRange(least, None))
    if conditions:
        yield tuple(conditions.values())
