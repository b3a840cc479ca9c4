"""The schedule of groups with reductions: softmax, normalisations, means, global pooling.

``decide`` chooses the loop structure. If all stages share their leading axes ("rows"), the group
runs row by row, so that intermediate results stay in L1; if they share the contiguous axis and
reduce an outer one, it runs by blocks of columns; otherwise each reduction gets its own loop nest.
A reduction along the contiguous axis keeps vectors of partial results (``rfactor``), which a
horizontal reduction combines; one along an outer axis is vectorized over the contiguous data axis.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.schedule import parallelize, pays_in_parallel, schedule_loops
from weft.strategy.cpu.reduction.column_blocks import schedule_by_column_blocks
from weft.strategy.cpu.reduction.columns import PARTIALS, schedule_columns, vectorize_data
from weft.strategy.cpu.reduction.decide import (
    ReductionAlgorithm,
    decide_reduction,
    has_few_results,
)
from weft.strategy.cpu.reduction.partial_vectors import (
    lanes_along,
    partial_vectors,
    reduce_horizontally,
    vectors_along,
)
from weft.strategy.cpu.reduction.rows import schedule_by_rows
from weft.strategy.extents import size_of
from weft.strategy.implementation import compute_of
from weft.strategy.kept_stages import KeptStages


def schedule_reductions(ctx: CpuContext) -> None:
    """Schedule a group that holds at least one reduction."""
    decision = decide_reduction(ctx.outputs, ctx.target, str(ctx.knobs.get("loops", "auto")))
    plan, kept = decision.plan, decision.plan.stages
    for op in computes_below(ctx.outputs):
        if kept.is_inlined(op):
            ctx.schedule[op.output(0)].compute_inline()
    if decision.algorithm == ReductionAlgorithm.COLUMN_BLOCKS and plan.column_blocks is not None:
        schedule_by_column_blocks(ctx, kept, plan.column_blocks)
        return
    if decision.algorithm == ReductionAlgorithm.ROWS:
        schedule_by_rows(ctx, kept, plan.rows)
        return
    for op in kept.ops:
        if is_reduction(op):
            _schedule_alone(ctx, kept, op)
        else:
            schedule_loops(ctx.schedule[op.output(0)], op.output(0), kept.body(op), ctx.target,
                           int(ctx.knobs.get("vectors", 0)))


def _schedule_alone(ctx: CpuContext, kept: KeptStages, op: te.ComputeOp) -> None:
    """One reduction in a separate loop nest, vectorized along its contiguous axis."""
    # Too few results to share among threads: the reduced axis is shared instead.
    if has_few_results(op, ctx.target):
        op = _split_among_threads(ctx, kept, op) or op
    stage = ctx.schedule[op.output(0)]
    load, contiguous = kept.contiguous_load(op) or (None, None)
    loops = list(op.axis)
    if load is not None and contiguous in loops and len(op.body) == 1:
        schedule_columns(ctx, op, contiguous, load)
        return
    lanes = ctx.target.lanes(op.output(0).dtype)
    if contiguous in loops:
        loops = vectorize_data(stage, op, loops, contiguous, lanes)
    if pays_in_parallel([op], ctx.target):
        loops = parallelize(stage, loops)
    if contiguous not in op.reduce_axis:
        return
    along = kept.fused_reduction(stage, op)[-1]
    extent = size_of(along.extent)
    lanes = lanes_along(extent, lanes)
    if lanes > 1:
        partial_vectors(ctx.schedule, op, along, lanes=lanes,
                        vectors=vectors_along(op, extent, 1, ctx.knobs),
                        attach=(stage, loops[-1]) if loops else None)


def _split_among_threads(
    ctx: CpuContext, kept: KeptStages, op: te.ComputeOp
) -> te.ComputeOp | None:
    """A large reduction with few results as partial reductions that run in parallel.

    Their number is fixed, so that the result does not depend on the number of threads.
    """
    tensor = op.output(0)
    stage = ctx.schedule[tensor]
    # The outermost reduction axis: a chunk keeps the inner ones whole.
    number = next((n for n, extent in enumerate(kept.reduction_extents(op)) if extent > 1), 0)
    if kept.reduction_extents(op)[number] < PARTIALS:
        return None
    chunk, _ = stage.split(kept.fused_reduction(stage, op)[number], nparts=PARTIALS)
    partial = compute_of(one_tensor(ctx.schedule.rfactor(tensor, chunk, 0)))
    reduce_horizontally(stage, ctx.target.lanes(tensor.dtype))
    return partial
