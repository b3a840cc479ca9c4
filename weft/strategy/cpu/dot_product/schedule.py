"""The schedule of a matmul by dot-product instructions: packing, register tiles, corrections."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, elements, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.dot_product.instruction import DotPlan
from weft.strategy.cpu.elementwise.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD

CHUNK = 16  # groups of a row that are adjacent in a packed A: a cache line of 64 bytes


def schedule_dot_product(
    ctx: CpuContext, *, plan: DotPlan, tile: RegisterTile, flat_rows: bool = False
) -> None:
    """Pack, then tile; parallel over tiles.

    With ``flat_rows`` all axes of the result but the last are rows of one matrix, else those
    before are a batch.
    """
    s = ctx.schedule
    for op in computes_below(ctx.outputs):
        stage = s[op.output(0)]
        if op.role is te.StageRole.DOT_PRODUCT:
            _schedule_tiles(ctx, op, plan, tile, flat_rows=flat_rows)
        elif op.role is te.StageRole.OPERAND_SUMS:
            schedule_sums(stage, plan)
        elif op.role in te.PACKED_OPERANDS:
            _schedule_packing(stage, op, ctx.target.lanes(op.output(0).dtype))
        elif op is not ctx.output.op and op.role is not te.StageRole.ONES:
            stage.compute_inline()


def _schedule_packing(stage: te.Stage, op: te.ComputeOp, lanes: int) -> None:
    *outer, inner = op.axis
    if op.role is te.StageRole.INTERLEAVED_B:  # rows are read as vectors, and shuffled together
        inner = stage.fuse(outer.pop(), inner)
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    if elements(op) >= PARALLEL_THRESHOLD:
        parallelize(stage, loops)


def schedule_sums(stage: te.Stage, plan: DotPlan) -> None:
    """Sums of an operand are its product with ones, by the same instruction."""
    *outer, axis = stage.axis
    *groups, inner = stage.reduce_axis
    vectors, lane = stage.split(axis, factor=plan.lanes)
    stage.reorder(*outer, vectors, *groups, lane, inner)
    stage.tensorize(lane, plan.instruction)


def _schedule_tiles(
    ctx: CpuContext, product: te.ComputeOp, plan: DotPlan, tile: RegisterTile, *,
    flat_rows: bool,
) -> None:
    """The whole reduction inside a register tile."""
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    *leading, column = stage.axis
    if flat_rows and len(leading) > 1:
        leading = [stage.fuse(*leading)]
    panels, inside = stage.split(column, factor=tile.nr_vectors * plan.lanes)
    vector, lane = stage.split(inside, factor=plan.lanes)
    around, within_tile = [*leading[:-1], panels], [vector, lane]
    if leading:  # a product with a vector has no rows
        tall, short = stage.split(leading[-1], factor=tile.mr)
        around, within_tile = [*around, tall], [short, *within_tile]
        stage.unroll(short)
    stage.reorder(*around, *within_tile)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*around)
    acc = s[product.output(0)]
    acc.set_scope("local")
    acc.compute_at(stage, task)
    *acc_batch, acc_row, acc_column = acc.axis
    group, inner = acc.reduce_axis
    chunk, within = acc.split(group, factor=CHUNK)
    vectors, lanes = acc.split(acc_column, factor=plan.lanes)
    acc.reorder(*acc_batch, chunk, within, acc_row, vectors, lanes, inner)
    acc.unroll(acc_row)
    acc.unroll(vectors)
    acc.tensorize(lanes, plan.instruction)
    if work_of(product) >= PARALLEL_THRESHOLD * plan.group:
        stage.parallel(task)
