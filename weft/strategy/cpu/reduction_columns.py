"""Reductions down columns: vectors of neighbouring columns, each lane a reduction of its own."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import size_of, work_of
from weft.strategy.cpu.contraction import one_tensor
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD
from weft.strategy.implementation import ScheduleContext


def schedule_columns(ctx: ScheduleContext, op: te.ComputeOp, contiguous: te.IterVar) -> None:
    """A strip of neighbouring columns in registers, down all that is reduced.

    Each step reads a run of neighbouring elements, and nothing of the result is in memory before
    it is final.
    """
    tensor, s = op.output(0), ctx.schedule
    lanes = ctx.target.lanes(tensor.dtype)
    position = op.axis.index(contiguous)
    strip = min(ctx.target.vector_registers // 2, -(-size_of(contiguous.extent) // lanes))
    acc = one_tensor(s.cache_write(tensor, "local"))
    stage = s[tensor]
    columns = stage.axis[position]
    others = [axis for axis in stage.axis if axis is not columns]
    block, inside = stage.split(columns, factor=strip * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.reorder(*others, block, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    loops = [*others, block]
    if work_of(op) >= PARALLEL_THRESHOLD:
        loops = parallelize(stage, loops)
    s[acc].compute_at(stage, loops[-1])
    _accumulate(s[acc], position, lanes)


def _accumulate(stage: te.Stage, position: int, lanes: int) -> None:
    columns = stage.axis[position]
    others = [axis for axis in stage.axis if axis is not columns]
    reductions = list(stage.reduce_axis)
    vector, lane = stage.split(columns, factor=lanes)
    stage.reorder(*others, *reductions, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)


def vectorize_data(
    stage: te.Stage,
    op: te.ComputeOp,
    data: list[te.IterVar],
    contiguous: te.IterVar,
    lanes: int,
) -> list[te.IterVar]:
    """The contiguous data axis innermost as vectors, reductions outside; the loops around."""
    others = [axis for axis in data if axis is not contiguous]
    around = vectorize_innermost(stage, contiguous, lanes)
    vectors = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    if vectors:
        stage.reorder(*others, *around, *op.reduce_axis, *vectors)
    return [*others, *around]
