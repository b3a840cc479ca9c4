"""The loops of a matrix product over panels: tiles in registers, and slices of a long depth."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.contraction import accumulators, one_tensor, tile_in_registers
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD
from weft.strategy.cpu.product_plan import ProductPlan
from weft.strategy.cpu.transpose import Crossing, find_crossing, tile_crossing
from weft.strategy.implementation import ScheduleContext
from weft.te.walk import loads_of


def schedule_product(ctx: ScheduleContext, *, plan: ProductPlan, flat_rows: bool = False) -> None:
    """Copy what is copied into panels, then tile; parallel over tiles, or over blocks of slices.

    With ``flat_rows`` all axes but the last are rows of one matrix, else those before the last
    two are a batch.
    """
    product = reduction_below(ctx)
    _schedule_panels(ctx, product, ctx.target.lanes(ctx.output.dtype))
    if plan.slice_depth is None:
        _schedule_tiles(ctx, product, plan, flat_rows)
    else:
        _schedule_slices(ctx, product, plan, plan.slice_depth, flat_rows)


def reduction_below(ctx: ScheduleContext) -> te.ComputeOp:
    """The product itself: the one reduction among the anchor's computes."""
    return next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))


def _result_axes(
    stage: te.Stage, flat_rows: bool
) -> tuple[list[te.IterVar], te.IterVar, te.IterVar]:
    *leading, column = stage.axis
    if not flat_rows:
        return leading[:-1], leading[-1], column
    return [], stage.fuse(*leading) if len(leading) > 1 else leading[0], column


def _schedule_tiles(
    ctx: ScheduleContext, product: te.ComputeOp, plan: ProductPlan, flat_rows: bool
) -> None:
    """The whole depth inside a register tile."""
    s = ctx.schedule
    acc = accumulators(ctx, product.output(0))
    stage = s[ctx.output]
    batch, row, column = _result_axes(stage, flat_rows)
    panel, inside = stage.split(column, factor=plan.width)
    vector, lane = stage.split(inside, factor=plan.lanes)
    tall, short = stage.split(row, factor=plan.tile.rows)
    blocks, tall = _blocks(stage, tall, plan.block)
    stage.reorder(*batch, *blocks, panel, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*batch, *blocks, panel, tall)
    s[acc].compute_at(stage, task)
    *acc_batch, acc_row, acc_column = s[acc].axis
    acc_vector, acc_lane = s[acc].split(acc_column, factor=plan.lanes)
    tile_in_registers(s[acc], list(s[acc].reduce_axis), [acc_row], [acc_vector], acc_lane,
                      acc_batch)
    if work_of(product) >= PARALLEL_THRESHOLD:
        stage.parallel(task)


def _blocks(
    stage: te.Stage, tall: te.IterVar, block: int
) -> tuple[list[te.IterVar], te.IterVar]:
    """The loop over blocks of tiles, where there are several, and the one over a block's."""
    if size_of(tall.extent) <= block:
        return [], tall
    outer, inner = stage.split(tall, factor=block)
    return [outer], inner


def _schedule_slices(
    ctx: ScheduleContext, product: te.ComputeOp, plan: ProductPlan, depth: int, flat_rows: bool
) -> None:
    """Sums of one panel and a block of rows in memory, to which slice after slice is added.

    ``rfactor`` over slices makes the product of one slice a stage of its own, which is computed
    in registers tile by tile.
    """
    s = ctx.schedule
    rows = plan.tile.rows
    acc = accumulators(ctx, product.output(0), scope="global")
    stage = s[ctx.output]
    batch, row, column = _result_axes(stage, flat_rows)
    block, row_in = stage.split(row, factor=rows * plan.block)
    panel, column_in = stage.split(column, factor=plan.width)
    stage.reorder(*batch, block, panel, row_in, column_in)
    _, lane = stage.split(column_in, factor=plan.lanes)
    stage.vectorize(lane)
    task = stage.fuse(*batch, block, panel)
    stage.parallel(task)
    slices, _ = s[acc].split(s[acc].reduce_axis[0], factor=depth)
    part = one_tensor(s.rfactor(acc, slices))
    sums = s[acc]
    sums.compute_at(stage, task)
    *sums_batch, sums_row, sums_column = sums.axis
    tall, short = sums.split(sums_row, factor=rows)
    vector, sums_lane = sums.split(sums_column, factor=plan.lanes)
    tile_in_registers(sums, [], [short], [vector], sums_lane,
                      [*sums_batch, *sums.reduce_axis, tall])
    _schedule_slice(s[part], sums, tall, plan)


def _schedule_slice(
    stage: te.Stage, sums: te.Stage, tall: te.IterVar, plan: ProductPlan
) -> None:
    stage.set_scope("local")
    stage.compute_at(sums, tall)
    *around, row, column = stage.axis
    vector, lane = stage.split(column, factor=plan.lanes)
    tile_in_registers(stage, list(stage.reduce_axis), [row], [vector], lane, around)


def _schedule_panels(ctx: ScheduleContext, product: te.ComputeOp, lanes: int) -> None:
    """Panels are copied with vectors, in parallel; what else feeds the product is inlined."""
    for op in computes_below((ctx.anchor,)):
        if op in (product, ctx.anchor.op):
            continue
        stage = ctx.schedule[op.output(0)]
        if "panels" not in op.tag.split(","):
            stage.compute_inline()
            continue
        *outer, inner = op.axis
        crossing = _crossing_of_panels(op, lanes)
        loops = (tile_crossing(stage, list(op.axis), crossing, lanes) if crossing is not None
                 else [*outer, *vectorize_innermost(stage, inner, lanes)])
        if elements(op) >= PARALLEL_THRESHOLD:
            parallelize(stage, loops)


def _crossing_of_panels(op: te.ComputeOp, lanes: int) -> Crossing | None:
    """Lines that lie along the depth are turned in registers, a tile at a time.

    Only where they make whole panels: the last one would read lines that there are not.
    """
    lines = next((size_of(load.producer.shape[-2]) for load in loads_of(op.body)), 0)
    if lines % size_of(op.axis[-1].extent):
        return None
    return find_crossing([[axis] for axis in op.axis], op.body, lanes)
