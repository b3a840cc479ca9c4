"""The schedule of convolutions by dot product instructions."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, elements, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators
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


def schedule_channels_last_dot_product(
    ctx: CpuContext, *, plan: DotInstruction, tile: RegisterTile, row_block: int, rank: int,
    is_flat: bool,
) -> None:
    """Register tiles of positions by vectors of output channels, with all taps inside.

    A task is one slice of the kernel over a block of rows: the slice stays in L2 for all of them.
    A signal, or an image where each result reads one pixel, is a single row, whose blocks are
    counted in tiles. ``rank`` is the number of spatial axes.
    """
    s = ctx.schedule
    dot = next(op for op in computes_below((ctx.anchor,)) if op.role is te.StageRole.DOT_PRODUCT)
    acc = accumulators(ctx, dot.output(0))
    stage = s[ctx.output]
    *outer, channel = stage.axis
    outer, rows = outer[:-rank], outer[-rank:]  # the batch, and at most one block of all channels
    slices, inside = stage.split(channel, factor=tile.nr_vectors * plan.lanes)
    vector, lane = stage.split(inside, factor=plan.lanes)
    if is_flat and rank > 1:
        rows = [stage.fuse(*rows)]
    columns, position = stage.split(rows.pop(), factor=tile.mr)
    row_blocks, within = stage.split(rows.pop() if rows else columns, factor=row_block)
    tasks = [*outer, *rows, row_blocks, slices]
    inner = [within] if is_flat or rank == 1 else [within, columns]
    stage.reorder(*tasks, *inner, position, vector, lane)
    stage.unroll(position)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*tasks)
    sums = s[acc]
    if work_of(dot) >= parallel_threshold(ctx.target) * plan.k_group:
        stage.parallel(task)
    sums.compute_at(stage, inner[-1])
    *positions, a_channel = sums.axis
    *taps, depth, group = sums.reduce_axis
    vectors, lanes = sums.split(a_channel, factor=plan.lanes)
    sums.reorder(*positions[:-1], *taps, depth, positions[-1], vectors, lanes, group)
    for axis in (positions[-1], vectors):
        sums.unroll(axis)
    sums.tensorize(lanes, plan.instruction)


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
