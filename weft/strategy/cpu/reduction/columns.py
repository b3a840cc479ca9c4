"""Reductions along an outer axis: each lane reduces one column.

Blocks of columns with accumulators in registers read every element once and store only final
results. They are slow if the row stride is a multiple of a page, because all rows of a block then
map to the same cache sets and memory banks. In that case whole rows are streamed in memory order
and added to accumulators in L1.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.access import stride_along
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.schedule import (
    parallelize,
    pays_in_parallel,
    vectorize_innermost,
)
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.extents import size_of
from weft.strategy.implementation import compute_of
from weft.target import CpuTarget
from weft.tir import ProducerLoad

# Partial reductions for threads to share: a fixed number, enough for an even distribution.
PARTIALS = 16
STREAM_VECTORS = 8  # unrolled, of streamed rows


def schedule_columns(
    ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar, load: ProducerLoad
) -> None:
    """Reduce along an outer axis; ``contiguous`` is the axis along which ``load`` is contiguous."""
    if _rows_collide(op, load, ctx.target):
        _stream_rows(ctx, op, contiguous, load)
    else:
        _schedule_column_blocks(ctx, op, contiguous)


def _rows_collide(op: te.ComputeOp, load: ProducerLoad, target: CpuTarget) -> bool:
    """Whether the rows of a block map to the same cache sets and the operand exceeds L3."""
    itemsize = load.producer.dtype.itemsize
    pitch = stride_along(load, op.reduce_axis[-1])
    size = math.prod(size_of(n) for n in load.producer.shape) * itemsize
    if not pitch or size_of(op.reduce_axis[0].extent) < PARTIALS:
        return False
    return pitch * itemsize % machine_model(target).page_bytes == 0 and size > target.l3_bytes


def _stream_rows(
    ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar, load: ProducerLoad
) -> None:
    """Add whole rows, in memory order, to accumulators in L1.

    A fixed number of chunks of the rows has separate accumulators, so that threads share the work
    and the result does not depend on their number.
    """
    s, tensor = ctx.schedule, op.output(0)
    lanes = ctx.target.lanes(tensor.dtype)
    chunk, _ = s[tensor].split(op.reduce_axis[0], nparts=PARTIALS)
    partial = compute_of(one_tensor(s.rfactor(tensor, chunk, 0)))
    stage = s[partial.output(0)]
    columns = stage.axis[1 + op.axis.index(contiguous)]
    others = [axis for axis in stage.axis[1:] if axis is not columns]
    # The accumulators of a block have half of L1; the rows stream through the other half.
    resident = ctx.target.l1_bytes // 2 // tensor.dtype.itemsize
    block, inside = stage.split(columns, factor=resident // lanes * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    group, vector = stage.split(vector, factor=STREAM_VECTORS)
    # Reductions outside the vectors of a block: each row is read once, in memory order, and the
    # accumulators of the block stay in L1.
    stage.reorder(stage.axis[0], *others, block, *stage.reduce_axis, group, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    # The prefetch distance in iterations of ``group``, each of which prefetches once.
    step = STREAM_VECTORS * lanes * load.producer.dtype.itemsize
    ahead = machine_model(ctx.target).stream_prefetch_bytes
    stage.prefetch(load.producer, group, offset=max(1, ahead // step))
    stage.parallel(stage.axis[0])
    _schedule_column_blocks(ctx, op, contiguous)


def _schedule_column_blocks(ctx: CpuContext, op: te.ComputeOp, contiguous: te.IterVar) -> None:
    """One block of adjacent columns at a time, with its accumulators in registers.

    Each step loads a contiguous run of elements; only final results are stored.
    """
    tensor, s = op.output(0), ctx.schedule
    lanes = ctx.target.lanes(tensor.dtype)
    position = op.axis.index(contiguous)
    # Half of the registers hold accumulators; the others hold operands and constants.
    width = min(ctx.target.vector_registers // 2, -(-size_of(contiguous.extent) // lanes))
    acc = one_tensor(s.cache_write(tensor, "local"))
    stage = s[tensor]
    columns = stage.axis[position]
    others = [axis for axis in stage.axis if axis is not columns]
    block, inside = stage.split(columns, factor=width * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.reorder(*others, block, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    loops = [*others, block]
    if pays_in_parallel([op], ctx.target):
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
    """Vectorize the contiguous data axis inside the reductions; returns the loops around them."""
    others = [axis for axis in data if axis is not contiguous]
    around = vectorize_innermost(stage, contiguous, lanes)
    vectors = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    if vectors:
        stage.reorder(*others, *around, *op.reduce_axis, *vectors)
    return [*others, *around]
