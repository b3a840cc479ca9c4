"""Groups whose stages share leading axes run row by row, so that rows stay in L1.

Short rows are interleaved: the horizontal reduction at the end of a row is a chain of dependent
operations on ever narrower vectors, and the chains of several rows overlap.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.analysis import is_reduction, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import MIN_PARALLEL_EXTENT, pays_in_parallel
from weft.strategy.cpu.reduction.columns import vectorize_data
from weft.strategy.cpu.reduction.partial_vectors import (
    LONG_REDUCTION,
    innermost_vectors,
    lanes_along,
    partial_vectors,
    vectors_along,
)
from weft.strategy.extents import is_multiple, size_of
from weft.strategy.kept_stages import KeptStages, SharedRows, is_costly
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.te import PlaceholderOp, loads_of

# Interleaved rows, best first: enough to hide the latency of the horizontal reduction; others if
# these do not divide the number of rows.
HEIGHTS = (4, 3, 5, 2)
# From this many rows on, a tail of fewer rows costs little.
MANY_ROWS = 16


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Blocks of the shared rows; ``height`` rows along axis ``axis_index`` are interleaved."""

    rows: SharedRows
    axis_index: int
    height: int = 1

    @staticmethod
    def of(
        kept: KeptStages, rows: SharedRows, target: CpuTarget, wanted: int = 0
    ) -> RowBlocks:
        """Blocks of ``wanted`` rows; 0: the largest that fit in half of L1 and are enough.

        Long rows hide the latency themselves. A lone reduction gets a quarter of L1: several
        concurrent streams of memory are slower than one.
        """
        extents = [axis.extent for axis in kept.ops[0].axis[: rows.count]]
        axis_index = max((i for i, extent in enumerate(extents) if size_of(extent) > 1), default=0)
        single = RowBlocks(rows, axis_index)
        # Interleaving hides the latency of horizontal reductions, which end only reductions along
        # the contiguous axis.
        along = any(kept.contiguous_axis(op) in op.reduce_axis for op in kept.reductions)
        if rows.group > 1 or not along:
            return single
        if wanted:
            return RowBlocks(rows, axis_index, wanted)
        count, extent = max(1, math.prod(map(size_of, extents))), size_of(extents[axis_index])
        longest = max(work_of(op) // count * op.output(0).dtype.itemsize for op in kept.ops)
        is_parallel = pays_in_parallel(kept.ops, target)
        room = target.l1_bytes // (2 if len(kept.ops) > 1 else 4)
        for height in HEIGHTS:
            fits = height * longest <= room
            enough = not is_parallel or count // height >= MIN_PARALLEL_EXTENT
            if fits and enough and is_multiple(extents[axis_index], height):
                return RowBlocks(rows, axis_index, height)
        fits = HEIGHTS[0] * longest <= room
        return RowBlocks(rows, axis_index, HEIGHTS[0]) if fits and extent >= MANY_ROWS else single

    def loops(self, stage: te.Stage) -> tuple[te.IterVar, te.IterVar | None, list[te.IterVar]]:
        """The loop over blocks of the result, the loop over rows of one block, the data loops."""
        outer, data = list(stage.axis[: self.rows.count]), list(stage.axis[self.rows.count:])
        inside = None
        if self.rows.group > 1:
            outer[-1], member = stage.split(outer[-1], factor=self.rows.group)
            data = [member, *data]
        if self.height > 1:
            outer[self.axis_index], inside = stage.split(outer[self.axis_index], factor=self.height)
            stage.reorder(*outer, inside)
        return stage.fuse(*outer) if len(outer) > 1 else outer[0], inside, data

    @property
    def interleaved_axis(self) -> int | None:
        """The index of the axis whose rows are interleaved; ``None`` without interleaving."""
        return self.axis_index if self.height > 1 else None


def schedule_by_rows(ctx: CpuContext, kept: KeptStages, rows: SharedRows) -> None:
    """Compute all stages inside one loop over blocks of rows."""
    s = ctx.schedule
    blocks = RowBlocks.of(kept, rows, ctx.target, int(ctx.knobs.get("height", 0)))
    out_stage = s[kept.output.output(0)]
    task, rows_of_result, data_of_result = blocks.loops(out_stage)
    # Only the last stage that reads the input prefetches: earlier ones would do so too soon.
    last_reader = next((op for op in reversed(kept.ops[:-1]) if _reads_rows(kept, op)), None)
    for op in kept.ops:
        stage = s[op.output(0)]
        if op is kept.output:
            inside, data = rows_of_result, data_of_result
        else:
            # All stages of a block in one task: the buffers between them hold a block, which stays
            # in L1.
            stage.compute_at(out_stage, task)
            inside = stage.axis[blocks.axis_index] if blocks.height > 1 else None
            data = list(op.axis[rows.count:])
        if is_reduction(op):
            partial = _schedule_reduction(ctx, kept, op, (out_stage, task), blocks)
            if partial is not None and op is last_reader:
                _prefetch_next_row(kept, op, partial, partial.reduce_axis[0], ctx.target)
        elif data:
            data = kept.fused_data(stage, op, data)
            innermost_vectors(stage, data, inside, ctx.target)
            if op is not kept.output and _fits_in_result(kept, op, blocks, ctx.target):
                stage.store_in(out_stage)
            if op is last_reader and op is not kept.output:
                _prefetch_next_row(kept, op, stage, stage.leaf_iter_vars[-2], ctx.target)
        if inside is not None:  # so that the chains of interleaved rows overlap
            stage.unroll(inside)
    if pays_in_parallel(kept.ops, ctx.target) and size_of(task.extent) > 1:
        out_stage.parallel(task)


def _fits_in_result(
    kept: KeptStages, op: te.ComputeOp, blocks: RowBlocks, target: CpuTarget
) -> bool:
    """Whether ``op`` should be stored in the result's buffer, which overwrites it elementwise.

    Only if a block exceeds L1: a separate buffer would then add traffic to L2. Not along a short
    axis, where a masked load would have to wait for the masked store before it.
    """
    result = kept.output
    dtype = op.output(0).dtype
    rows = math.prod(size_of(axis.extent) for axis in kept.ops[0].axis[: blocks.rows.count])
    row_bytes = work_of(op) // max(1, rows) * dtype.itemsize
    is_short = size_of(result.axis[-1].extent) < LONG_REDUCTION
    if is_short or is_reduction(result) or 2 * blocks.height * row_bytes <= target.l1_bytes:
        return False
    loads = [load for load in loads_of(kept.body(result)) if load.producer.op is op]
    same = dtype == result.output(0).dtype and len(op.axis) == len(result.axis) and all(
        a.extent is b.extent for a, b in zip(op.axis, result.axis, strict=True))
    return same and bool(loads) and all(
        i is a.var for load in loads for i, a in zip(load.indices, result.axis, strict=True))


def _reads_rows(kept: KeptStages, op: te.ComputeOp) -> bool:
    """Whether ``op`` reads contiguous rows of an input and spends much arithmetic on them."""
    load, along = kept.contiguous_load(op) or (None, None)
    if load is None or along is None or not isinstance(load.producer.op, PlaceholderOp):
        return False
    is_last = along is op.axis[-1] if not op.reduce_axis else op.reduce_axis == (along,)
    return is_last and load.producer.shape[-1] is along.extent and is_costly(kept.body(op))


def _prefetch_next_row(
    kept: KeptStages, op: te.ComputeOp, stage: te.Stage, loop: te.IterVar, target: CpuTarget
) -> None:
    """Prefetch the next row that ``op`` reads while ``loop`` of its ``stage`` computes.

    Worth it if two rows and the result fit in L2 and the whole operand is large against L3. The
    prefetch distance is one row.
    """
    load, along = kept.contiguous_load(op) or (None, None)
    if load is None or along is None:
        return
    row_bytes = size_of(along.extent) * load.producer.dtype.itemsize
    is_long = target.l1_bytes < 2 * row_bytes and 3 * row_bytes <= target.l2_bytes
    exceeds_l3 = 4 * work_of(op) * load.producer.dtype.itemsize >= target.l3_bytes
    if is_long and exceeds_l3:
        stage.prefetch(load.producer, loop, offset=size_of(loop.extent))


def _schedule_reduction(
    ctx: CpuContext,
    kept: KeptStages,
    op: te.ComputeOp,
    attach: tuple[te.Stage, te.IterVar],
    blocks: RowBlocks,
) -> te.Stage | None:
    """One reduction inside the loop over rows, vectorized along itself or along a data axis.

    Returns the stage of its partial results, if it has vectors of them.
    """
    stage = ctx.schedule[op.output(0)]
    lanes = ctx.target.lanes(op.output(0).dtype)
    contiguous = kept.contiguous_axis(op)
    data = list(op.axis[blocks.rows.count:])
    if contiguous in data:
        vectorize_data(stage, op, data, contiguous, lanes)
    if contiguous not in op.reduce_axis:
        return None
    along = kept.fused_reduction(stage, op)[-1]
    extent = size_of(along.extent)
    lanes = lanes_along(extent, lanes)
    if lanes == 1:
        return None
    return partial_vectors(ctx.schedule, op, along, lanes=lanes,
                           vectors=vectors_along(op, extent, blocks.height, ctx.knobs),
                           attach=attach, row=blocks.interleaved_axis)
