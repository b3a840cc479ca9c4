"""The reduction family: softmax, normalisations, means, pools without a layout of their own.

Where all stages share their leading axes ("rows"), the whole group runs row by row, so that
intermediate results stay in the nearest cache; where they share the contiguous axis and reduce
another one, it runs in strips. Otherwise each reduction is a loop nest of its own.
A reduction along the contiguous axis keeps a vector of partial results (``rfactor``) and adds its
lanes up at the end; one along an outer axis is vectorised over the contiguous data axis.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.injective import MIN_PARALLEL_EXTENT, parallelize, schedule_loops
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.cpu.reduction.column_blocks import Strips, schedule_by_strips
from weft.strategy.cpu.reduction.columns import PARTS, schedule_columns, vectorize_data
from weft.strategy.cpu.reduction.lanes import (
    combine_in_a_tree,
    lanes_along,
    partial_vectors,
    vectors_along,
)
from weft.strategy.cpu.reduction.rows import schedule_by_rows
from weft.strategy.cpu.reduction.stages import KeptStages, SharedRows
from weft.strategy.implementation import compute_of


def schedule_reductions(ctx: CpuContext) -> None:
    """Schedule a group that holds at least one reduction."""
    kept = KeptStages.of(ctx.outputs)
    for op in computes_below(ctx.outputs):
        if kept.is_inlined(op):
            ctx.schedule[op.output(0)].compute_inline()
    rows = kept.shared_rows() if len(ctx.outputs) == 1 else SharedRows(0)
    strips = Strips.of(kept, ctx.target) if len(ctx.outputs) == 1 else None
    if strips is not None and len(strips.shared) > rows.count:
        schedule_by_strips(ctx, kept, strips)
        return
    if rows.count and (len(kept.ops) > 1 or not _is_much_to_little(kept.output)):
        schedule_by_rows(ctx, kept, rows)
        return
    for op in kept.ops:
        if is_reduction(op):
            _schedule_alone(ctx, kept, op)
        else:
            schedule_loops(ctx.schedule[op.output(0)], op.output(0), kept.body(op), ctx.target)


def _is_much_to_little(op: te.ComputeOp) -> bool:
    """Whether there are too few results for threads to share."""
    return elements(op) < MIN_PARALLEL_EXTENT and work_of(op) >= PARTS * PARALLEL_THRESHOLD


def _schedule_alone(ctx: CpuContext, kept: KeptStages, op: te.ComputeOp) -> None:
    if _is_much_to_little(op):
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
    if work_of(op) >= PARALLEL_THRESHOLD:
        loops = parallelize(stage, loops)
    if contiguous not in op.reduce_axis:
        return
    along = kept.fused_reduction(stage, op)[-1]
    extent = size_of(along.extent)
    lanes = lanes_along(extent, lanes)
    if lanes > 1:
        partial_vectors(ctx.schedule, op, along, lanes=lanes,
                        vectors=vectors_along(op, extent, rows=1),
                        attach=(stage, loops[-1]) if loops else None)


def _split_among_threads(
    ctx: CpuContext, kept: KeptStages, op: te.ComputeOp
) -> te.ComputeOp | None:
    """A reduction of much to little as a fixed number of partial ones, which run in parallel.

    The number does not depend on the threads there are, so neither does the result's last bit.
    """
    tensor = op.output(0)
    stage = ctx.schedule[tensor]
    outermost = kept.fused_reduction(stage, op)[0]
    if size_of(outermost.extent) < PARTS:
        return None
    part, _ = stage.split(outermost, nparts=PARTS)
    partial = compute_of(one_tensor(ctx.schedule.rfactor(tensor, part, 0)))
    combine_in_a_tree(stage, ctx.target.lanes(tensor.dtype))
    return partial
