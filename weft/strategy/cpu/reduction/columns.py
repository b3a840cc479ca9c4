"""Reductions down columns: vectors of neighbouring columns, each lane a reduction of its own.

Strips of columns in registers read every element once and write none before it is final. Down
many rows whose distance is a multiple of a page they are slow: those rows fall into the same sets
of the caches and the same banks of memory. There whole rows are added to sums in the first cache,
in the order in which they lie in memory.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.access import stride_along
from weft.strategy.analysis import size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, machine_model
from weft.strategy.implementation import compute_of
from weft.target import CpuTarget
from weft.tir.expr import ProducerLoad

# Parts of a reduction, for threads to share: enough to share them evenly.
PARTS = 16
# Rows that are streamed: vectors written out, and how far ahead memory is asked for.
STREAM_VECTORS = 8
BYTES_AHEAD = 16 * 1024


def schedule_columns(
    ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar, load: ProducerLoad
) -> None:
    """Reduce down columns that lie along ``contiguous``, as ``load`` reads them."""
    if _rows_collide(op, load, ctx.target):
        _stream_rows(ctx, op, contiguous, load)
    else:
        _schedule_strips(ctx, op, contiguous)


def _rows_collide(op: te.ComputeOp, load: ProducerLoad, target: CpuTarget) -> bool:
    """Whether strips would walk down rows that share cache sets, out of no cache's reach."""
    itemsize = load.producer.dtype.itemsize
    pitch = stride_along(load, op.reduce_axis[-1])
    size = math.prod(size_of(n) for n in load.producer.shape) * itemsize
    if not pitch or size_of(op.reduce_axis[0].extent) < PARTS:
        return False
    return pitch * itemsize % machine_model(target).page_bytes == 0 and size > target.l3_bytes


def _stream_rows(
    ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar, load: ProducerLoad
) -> None:
    """Whole rows, one after the other, added to sums in memory near the core.

    A fixed number of parts of the rows has sums of its own, so that threads share the work and
    the result's last bit does not depend on how many there are.
    """
    s, tensor = ctx.schedule, op.output(0)
    lanes = ctx.target.lanes(tensor.dtype)
    part, _ = s[tensor].split(op.reduce_axis[0], nparts=PARTS)
    partial = compute_of(one_tensor(s.rfactor(tensor, part, 0)))
    stage = s[partial.output(0)]
    columns = stage.axis[1 + op.axis.index(contiguous)]
    others = [axis for axis in stage.axis[1:] if axis is not columns]
    nearby = ctx.target.l1_bytes // 2 // tensor.dtype.itemsize
    block, inside = stage.split(columns, factor=nearby // lanes * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    group, vector = stage.split(vector, factor=STREAM_VECTORS)
    stage.reorder(stage.axis[0], *others, block, *stage.reduce_axis, group, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    step = STREAM_VECTORS * lanes * load.producer.dtype.itemsize
    stage.prefetch(load.producer, group, offset=BYTES_AHEAD // step)
    stage.parallel(stage.axis[0])
    _schedule_strips(ctx, op, contiguous)


def _schedule_strips(ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar) -> None:
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
