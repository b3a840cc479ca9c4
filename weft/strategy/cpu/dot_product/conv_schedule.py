"""The schedule of convolutions by dot product instructions."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, elements, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.dot_product.schedule import schedule_sums
from weft.strategy.cpu.elementwise.schedule import parallelize, vectorize_innermost
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.target import CpuTarget


def schedule_dot_product_conv(
    ctx: CpuContext, *, plan: DotInstruction, tile: RegisterTile, is_flat: bool
) -> None:
    """A task is the columns of one tile in one row, for all output channels, tile by tile.

    So the pixels of a task stay in L1 while the weights of all channels pass.
    """
    s = ctx.schedule
    stage = s[ctx.output]
    n, channel, row, column = stage.axis
    outer = [n, row]
    if is_flat:
        outer, column = [n], stage.fuse(row, column)
    columns, inside = stage.split(column, factor=tile.nr_vectors * plan.lanes)
    vector, lane = stage.split(inside, factor=plan.lanes)
    tall, short = stage.split(channel, factor=tile.mr)
    stage.reorder(*outer, columns, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*outer, columns)
    for op in computes_below(ctx.outputs):
        inner = s[op.output(0)]
        if op.role is te.StageRole.DOT_PRODUCT:
            inner.compute_at(stage, tall)
            _block_registers(inner, plan)
            if work_of(op) >= parallel_threshold(ctx.target) * plan.k_group:
                stage.parallel(task)
        elif op.role is te.StageRole.CHANNEL_GROUPS:
            *outer, within, group = inner.axis
            _schedule_copy(inner, op, outer, inner.fuse(within, group), ctx.target)
        elif op.role is te.StageRole.PADDING:
            *outer, last = inner.axis
            _schedule_copy(inner, op, outer, last, ctx.target)
        elif op.role is te.StageRole.OPERAND_SUMS:
            schedule_sums(inner, plan)
        elif op is not ctx.output.op and op.role is not te.StageRole.ONES:
            inner.compute_inline()


def _schedule_copy(
    stage: te.Stage, op: te.ComputeOp, outer: list[te.IterVar], inner: te.IterVar,
    target: CpuTarget,
) -> None:
    lanes = target.lanes(op.output(0).dtype)
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    if elements(op) >= parallel_threshold(target):
        parallelize(stage, loops)


def _block_registers(stage: te.Stage, plan: DotInstruction) -> None:
    stage.set_scope("local")
    n, channel, row, column = stage.axis
    *taps, depth, inner = stage.reduce_axis
    vectors, lanes = stage.split(column, factor=plan.lanes)
    # The order of the packed kernel (``OHWI4i``): each channel reads its weights front to back.
    stage.reorder(n, row, *taps, depth, channel, vectors, lanes, inner)
    stage.unroll(channel)
    stage.unroll(vectors)
    stage.tensorize(lanes, plan.instruction)
