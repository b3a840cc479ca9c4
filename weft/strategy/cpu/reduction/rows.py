"""Groups whose stages share leading axes run row by row, so that rows stay in the nearest cache.

A few rows run side by side where they are short: the end of a reduction is a chain of dependent
operations on ever narrower vectors, and the chains of several rows overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import te
from weft.strategy.analysis import is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.injective import MIN_PARALLEL_EXTENT
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.cpu.reduction.columns import vectorize_data
from weft.strategy.cpu.reduction.lanes import (
    LONG_REDUCTION,
    innermost_vectors,
    lanes_along,
    partial_vectors,
    vectors_along,
)
from weft.strategy.cpu.reduction.stages import KeptStages, SharedRows, is_costly
from weft.target import CpuTarget
from weft.te.tensor import PlaceholderOp
from weft.te.walk import loads_of

# Rows side by side, best first: as many as hide the latency of combining, fewer where more would
# leave a rest.
HEIGHTS = (4, 3, 5, 2)
# From this many rows on, a rest of them costs little.
MANY_ROWS = 16


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Blocks of the shared rows; ``height`` along the axis at ``place`` run together."""

    rows: SharedRows
    place: int
    height: int = 1

    @staticmethod
    def of(kept: KeptStages, rows: SharedRows, target: CpuTarget) -> RowBlocks:
        """Blocks that take a part of the first cache, and enough of them for threads.

        Longer rows hide latency themselves, and a lone reduction gets one stream of memory
        faster than several.
        """
        extents = [size_of(axis.extent) for axis in kept.ops[0].axis[: rows.count]]
        place = max((i for i, extent in enumerate(extents) if extent > 1), default=0)
        alone = RowBlocks(rows, place)
        along = any(kept.contiguous_axis(op) in op.reduce_axis for op in kept.reductions)
        if rows.group > 1 or not along:
            return alone
        count, extent = max(1, math.prod(extents)), extents[place]
        longest = max(work_of(op) // count * op.output(0).dtype.itemsize for op in kept.ops)
        is_parallel = sum(map(work_of, kept.ops)) >= PARALLEL_THRESHOLD
        room = target.l1_bytes // (2 if len(kept.ops) > 1 else 4)
        for height in HEIGHTS:
            fits = height * longest <= room
            enough = not is_parallel or count // height >= MIN_PARALLEL_EXTENT
            if fits and enough and extent % height == 0:
                return RowBlocks(rows, place, height)
        fits = HEIGHTS[0] * longest <= room
        return RowBlocks(rows, place, HEIGHTS[0]) if fits and extent >= MANY_ROWS else alone

    def loops(self, stage: te.Stage) -> tuple[te.IterVar, te.IterVar | None, list[te.IterVar]]:
        """The loop over blocks of the result, that over the rows of one, and those over data."""
        outer, data = list(stage.axis[: self.rows.count]), list(stage.axis[self.rows.count:])
        inside = None
        if self.rows.group > 1:
            outer[-1], member = stage.split(outer[-1], factor=self.rows.group)
            data = [member, *data]
        if self.height > 1:
            outer[self.place], inside = stage.split(outer[self.place], factor=self.height)
            stage.reorder(*outer, inside)
        return stage.fuse(*outer) if len(outer) > 1 else outer[0], inside, data

    @property
    def side_by_side(self) -> int | None:
        """The place of the axis whose rows run side by side."""
        return self.place if self.height > 1 else None


def schedule_by_rows(ctx: CpuContext, kept: KeptStages, rows: SharedRows) -> None:
    """All stages inside one loop over blocks of rows."""
    s = ctx.schedule
    blocks = RowBlocks.of(kept, rows, ctx.target)
    out_stage = s[kept.output.output(0)]
    task, rows_of_result, data_of_result = blocks.loops(out_stage)
    last_reader = next((op for op in reversed(kept.ops[:-1]) if _reads_rows(kept, op)), None)
    for op in kept.ops:
        stage = s[op.output(0)]
        if op is kept.output:
            inside, data = rows_of_result, data_of_result
        else:
            stage.compute_at(out_stage, task)
            inside = stage.axis[blocks.place] if blocks.height > 1 else None
            data = list(op.axis[rows.count:])
        if is_reduction(op):
            partial = _schedule_reduction(ctx, kept, op, (out_stage, task), blocks)
            if partial is not None and op is last_reader:
                _fetch_next_row(kept, op, partial, partial.reduce_axis[0], ctx.target)
        elif data:
            data = kept.fused_data(stage, op, data)
            innermost_vectors(stage, data, inside, ctx.target)
            if op is not kept.output and _belongs_in_result(kept, op, blocks, ctx.target):
                stage.store_in(out_stage)
            if op is last_reader and op is not kept.output:
                _fetch_next_row(kept, op, stage, stage.leaf_iter_vars[-2], ctx.target)
        if inside is not None:
            stage.unroll(inside)
    if sum(map(work_of, kept.ops)) >= PARALLEL_THRESHOLD and size_of(task.extent) > 1:
        out_stage.parallel(task)


def _belongs_in_result(
    kept: KeptStages, op: te.ComputeOp, blocks: RowBlocks, target: CpuTarget
) -> bool:
    """Whether ``op`` is what the result is made of, element by element, and too large for the
    first cache: memory of its own would only be more to write and to read.

    Not along a short axis: there a masked load would wait for the masked store before it.
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
    """Whether ``op`` reads whole rows of an input, along memory, and takes its time over them."""
    load, along = kept.contiguous_load(op) or (None, None)
    if load is None or along is None or not isinstance(load.producer.op, PlaceholderOp):
        return False
    is_last = along is op.axis[-1] if not op.reduce_axis else op.reduce_axis == (along,)
    return is_last and load.producer.shape[-1] is along.extent and is_costly(kept.body(op))


def _fetch_next_row(
    kept: KeptStages, op: te.ComputeOp, stage: te.Stage, loop: te.IterVar, target: CpuTarget
) -> None:
    """Ask for the next row of what ``op`` reads while ``loop`` of its ``stage`` computes.

    That pays where the second cache has room for both rows and the result, and the third has not
    much for all of them. An element of the next row lies as far behind as a row is long.
    """
    load, along = kept.contiguous_load(op) or (None, None)
    if load is None or along is None:
        return
    row_bytes = size_of(along.extent) * load.producer.dtype.itemsize
    is_long = target.l1_bytes < 2 * row_bytes and 3 * row_bytes <= target.l2_bytes
    is_far = 4 * work_of(op) * load.producer.dtype.itemsize >= target.l3_bytes
    if is_long and is_far:
        stage.prefetch(load.producer, loop, offset=size_of(loop.extent))


def _schedule_reduction(
    ctx: CpuContext,
    kept: KeptStages,
    op: te.ComputeOp,
    attach: tuple[te.Stage, te.IterVar],
    blocks: RowBlocks,
) -> te.Stage | None:
    """One reduction inside the loop over rows: along its lanes, or along data beside it.

    Returns the stage of its partial results along lanes.
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
                           vectors=vectors_along(op, extent, blocks.height), attach=attach,
                           row=blocks.side_by_side)
