"""The schedule of a matmul by dot-product instructions: packing, register tiles, corrections."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.dot_product.cost import DotProductPlan
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.elementwise.schedule import vectorize_innermost
from weft.strategy.cpu.gemm.schedule import parallelize_packing
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.target import CpuTarget
from weft.tir.expr import int_value
from weft.tir.transform.exact_tail import EXACT_TAIL

CHUNK = 16  # groups of a row that are adjacent in a packed A: a cache line of 64 bytes


def schedule_dot_product(
    ctx: CpuContext, *, plan: DotProductPlan, flat_rows: bool = False
) -> None:
    """Pack the operands, then compute C tile by tile; threads share the tiles.

    With ``flat_rows`` all axes of the result but the last are M, else those before the last two are
    a batch.
    """
    s = ctx.schedule
    for op in computes_below(ctx.outputs):
        stage = s[op.output(0)]
        if op.role is te.StageRole.DOT_PRODUCT:
            _schedule_tiles(ctx, op, plan, flat_rows=flat_rows)
        elif op.role is te.StageRole.OPERAND_SUMS:
            schedule_sums(stage, plan.dot)
        elif op.role in te.PACKED_OPERANDS:
            _schedule_packing(stage, op, ctx.target)
        elif op is not ctx.output.op and op.role is not te.StageRole.ONES:
            stage.compute_inline()


def _schedule_packing(stage: te.Stage, op: te.ComputeOp, target: CpuTarget) -> None:
    *outer, inner = op.axis
    if op.role is te.StageRole.INTERLEAVED_B:
        # The k of a group come from different rows of B: these are read as vectors along N, and
        # shuffled together in registers.
        inner = stage.fuse(outer.pop(), inner)
    lanes = target.lanes(op.output(0).dtype)
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    parallelize_packing(stage, op, loops, target, panel_axes=3)


def schedule_sums(stage: te.Stage, dot: DotInstruction) -> None:
    """The sums of an operand: its product with ones, by the same instruction."""
    *outer, axis = stage.axis
    *groups, inner = stage.reduce_axis
    vectors, lane = stage.split(axis, factor=dot.lanes)
    stage.reorder(*outer, vectors, *groups, lane, inner)
    stage.tensorize(lane, dot.instruction)


def _schedule_tiles(
    ctx: CpuContext, reduction: te.ComputeOp, plan: DotProductPlan, *, flat_rows: bool
) -> None:
    """All of K inside a register tile; a task is a tile."""
    dot, tile = plan.dot, plan.tile
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    *leading, column = stage.axis
    if flat_rows and len(leading) > 1:
        leading = [stage.fuse(*leading)]
    panels, inside = stage.split(column, factor=tile.nr_vectors * dot.lanes)
    vector, lane = stage.split(inside, factor=dot.lanes)
    around, within_tile = [*leading[:-1], panels], [vector, lane]
    if leading:  # otherwise A is a vector, and C too
        has_symbolic_rows = int_value(leading[-1].extent) is None
        tile_row, row_in = stage.split(leading[-1], factor=tile.mr)
        around, within_tile = [*around, tile_row], [row_in, *within_tile]
        stage.unroll(row_in)
        if has_symbolic_rows:
            stage.pragma(row_in, EXACT_TAIL, 1)
    stage.reorder(*around, *within_tile)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*around)
    acc = s[reduction.output(0)]
    acc.set_scope("local")
    acc.compute_at(stage, task)
    *acc_batch, acc_row, acc_column = acc.axis
    if int_value(acc_row.extent) is None:
        outer, acc_row = acc.split(acc_row, factor=tile.mr)
        acc_batch = [*acc_batch, outer]
        acc.pragma(acc_row, EXACT_TAIL, 1)
    if int_value(acc_column.extent) is None:
        outer, acc_column = acc.split(acc_column, factor=tile.nr_vectors * dot.lanes)
        acc_batch = [*acc_batch, outer]
    group, inner = acc.reduce_axis
    # A chunk is a cache line of each row of A: the inner loop reads all of it while it is in L1.
    chunk, within = acc.split(group, factor=CHUNK)
    vectors, lanes = acc.split(acc_column, factor=dot.lanes)
    acc.reorder(*acc_batch, chunk, within, acc_row, vectors, lanes, inner)
    acc.unroll(acc_row)
    acc.unroll(vectors)
    acc.tensorize(lanes, dot.instruction)
    # ``work_of`` counts multiply-adds, of which an instruction does a group per lane.
    if work_of(reduction) >= parallel_threshold(ctx.target) * dot.k_group:
        stage.parallel(task)
