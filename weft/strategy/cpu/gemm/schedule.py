"""The loops of a matrix product over panels: tiles in registers, and slices of a long depth."""

from __future__ import annotations

import math
from typing import TypeAlias

from weft import te
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, one_tensor, register_blocking
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.elementwise.injective import (
    MIN_PARALLEL_EXTENT,
    parallelize,
    vectorize_innermost,
)
from weft.strategy.cpu.elementwise.transpose import find_crossing, tile_crossing
from weft.strategy.cpu.gemm.cost import GemmBlocking
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, imbalance, machine_model
from weft.target import CpuTarget

Place: TypeAlias = "tuple[te.Stage, te.IterVar]"

# Parts of the depth of a product with few tiles, for threads to share, and how deep they are.
PARTS, MIN_PART_DEPTH = 16, 64
# How much longer the slowest of common thread counts may take, for a panel to be copied near.
ACCEPTABLE_IMBALANCE = 1.1


def schedule_gemm(ctx: CpuContext, *, plan: GemmBlocking, flat_rows: bool = False) -> None:
    """Copy what is copied into panels, then tile; parallel over tiles, or over blocks of slices.

    With ``flat_rows`` all axes but the last are rows of one matrix, else those before the last
    two are a batch.
    """
    product = reduction_below(ctx)
    panels = _inline_all_but_panels(ctx, product)
    task = None
    if _are_few_tasks(product, plan, flat_rows):
        _schedule_parts(ctx, product, plan)
    elif plan.kc is not None:
        _schedule_slices(ctx, product, plan, plan.kc, flat_rows)
    else:
        is_near = bool(panels) and _are_enough_tasks(product, plan, flat_rows)
        task = _schedule_tiles(ctx, product, plan, flat_rows, by_panels=is_near)
    for op in panels:
        _schedule_panels(ctx, op, task if op.role is te.StageRole.PACKED_B else None)


def reduction_below(ctx: CpuContext) -> te.ComputeOp:
    """The product itself: the one reduction among the anchor's computes."""
    return next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))


def _result_axes(
    stage: te.Stage, flat_rows: bool
) -> tuple[list[te.IterVar], te.IterVar, te.IterVar]:
    *leading, column = stage.axis
    if not flat_rows:
        return leading[:-1], leading[-1], column
    return [], stage.fuse(*leading) if len(leading) > 1 else leading[0], column


def _counts(product: te.ComputeOp, plan: GemmBlocking, flat_rows: bool) -> tuple[int, int, int]:
    """Matrices, tiles of rows and panels."""
    *leading, rows, columns = (size_of(axis.extent) for axis in product.axis)
    matrices = 1 if flat_rows else math.prod(leading)
    return matrices, -(-rows // plan.tile.mr), -(-columns // plan.width)


def _are_enough_tasks(product: te.ComputeOp, plan: GemmBlocking, flat_rows: bool) -> bool:
    """Whether panels alone, each used by all rows at once, keep threads busy evenly."""
    matrices, tiles, panels = _counts(product, plan, flat_rows)
    if tiles > plan.block:
        return False
    return (work_of(product) < PARALLEL_THRESHOLD
            or imbalance(matrices * panels) < ACCEPTABLE_IMBALANCE)


def _are_few_tasks(product: te.ComputeOp, plan: GemmBlocking, flat_rows: bool) -> bool:
    """Whether threads can only share a deep product by sharing its depth."""
    tasks = math.prod(_counts(product, plan, flat_rows))
    depth = size_of(product.reduce_axis[0].extent)
    return (tasks < MIN_PARALLEL_EXTENT and depth >= PARTS * MIN_PART_DEPTH
            and work_of(product) >= PARTS * PARALLEL_THRESHOLD)


def _schedule_tiles(
    ctx: CpuContext, product: te.ComputeOp, plan: GemmBlocking, flat_rows: bool, *,
    by_panels: bool,
) -> Place | None:
    """The whole depth inside a register tile; a task is a tile, or all tiles of a panel.

    Returns the loop over panels in the second case, for the copy of a panel to be made in.
    """
    s = ctx.schedule
    acc = accumulators(ctx, product.output(0))
    stage = s[ctx.output]
    task = _tile(stage, s[acc], _result_axes(stage, flat_rows), plan, by_panels=by_panels)
    if work_of(product) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    return (stage, task) if by_panels else None


def _tile(
    stage: te.Stage, acc: te.Stage, axes: tuple[list[te.IterVar], te.IterVar, te.IterVar],
    plan: GemmBlocking, *, by_panels: bool = False, beside: te.IterVar | None = None,
) -> te.IterVar:
    """Compute ``acc`` in registers for each tile of ``stage``; returns the loop over tasks.

    ``beside`` is a loop whose iterations share a tile.
    """
    batch, row, column = axes
    panel, inside = stage.split(column, factor=plan.width)
    vector, lane = stage.split(inside, factor=plan.lanes)
    tall, short = stage.split(row, factor=plan.tile.mr)
    blocks, tall = _blocks(stage, tall, plan.block)
    unrolled = [short, vector] if beside is None else [beside, short, vector]
    stage.reorder(*batch, *blocks, panel, tall, *unrolled, lane)
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(lane)
    inner = [] if by_panels else [tall]
    task = stage.fuse(*batch, *blocks, panel, *inner)
    acc.compute_at(stage, tall if by_panels else task)
    *acc_batch, acc_row, acc_column = acc.axis
    rows = [acc_row] if beside is None else [*acc_batch, acc_row]
    vectors, acc_lane = acc.split(acc_column, factor=plan.lanes)
    register_blocking(acc, list(acc.reduce_axis), rows, [vectors], acc_lane,
                      acc_batch if beside is None else [])
    return task


def _schedule_parts(ctx: CpuContext, product: te.ComputeOp, plan: GemmBlocking) -> None:
    """Products over a fixed number of parts of the depth, in parallel, and then their sum.

    The number does not depend on the threads there are, so neither does the result's last bit.
    Of small tiles several parts run side by side, so that adding one need not wait for another.
    """
    s = ctx.schedule
    sums = accumulators(ctx, product.output(0))
    part, _ = s[sums].split(s[sums].reduce_axis[0], nparts=PARTS)
    parts = one_tensor(s.rfactor(sums, part))
    acc = one_tensor(s.cache_write(parts, "local"))
    part, *batch, row, column = s[parts].axis
    group, beside = s[parts].split(part, factor=_chains(plan.tile, ctx.target))
    task = _tile(s[parts], s[acc], ([group, *batch], row, column), plan, beside=beside)
    s[parts].parallel(task)
    stage = s[ctx.output]
    vector, lane = stage.split(stage.axis[-1], factor=plan.lanes)
    stage.vectorize(lane)
    s[sums].compute_at(stage, vector)
    *around, column = s[sums].axis
    s[sums].reorder(*around, *s[sums].reduce_axis, column)
    s[sums].vectorize(column)


def _chains(tile: RegisterTile, target: CpuTarget) -> int:
    """Parts of the depth to run side by side, so that a sum is ready when its next term is."""
    return max(1, machine_model(target).fma_latency // tile.accumulators)


def _blocks(
    stage: te.Stage, tall: te.IterVar, block: int
) -> tuple[list[te.IterVar], te.IterVar]:
    """The loop over blocks of tiles, where there are several, and the one over a block's."""
    if size_of(tall.extent) <= block:
        return [], tall
    outer, inner = stage.split(tall, factor=block)
    return [outer], inner


def _schedule_slices(
    ctx: CpuContext, product: te.ComputeOp, plan: GemmBlocking, depth: int, flat_rows: bool
) -> None:
    """Sums of one panel and a block of rows in memory, to which slice after slice is added.

    ``rfactor`` over slices makes the product of one slice a stage of its own, which is computed
    in registers tile by tile.
    """
    s = ctx.schedule
    rows = plan.tile.mr
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
    register_blocking(sums, [], [short], [vector], sums_lane,
                      [*sums_batch, *sums.reduce_axis, tall])
    _schedule_slice(s[part], sums, tall, plan)


def _schedule_slice(
    stage: te.Stage, sums: te.Stage, tall: te.IterVar, plan: GemmBlocking
) -> None:
    stage.set_scope("local")
    stage.compute_at(sums, tall)
    *around, row, column = stage.axis
    vector, lane = stage.split(column, factor=plan.lanes)
    register_blocking(stage, list(stage.reduce_axis), [row], [vector], lane, around)


def _inline_all_but_panels(ctx: CpuContext, product: te.ComputeOp) -> list[te.ComputeOp]:
    """The copies of operands; what else feeds the product is inlined."""
    panels = []
    for op in computes_below((ctx.anchor,)):
        if op in (product, ctx.anchor.op):
            continue
        if op.role in te.PACKED_OPERANDS:
            panels.append(op)
        else:
            ctx.schedule[op.output(0)].compute_inline()
    return panels


def _schedule_panels(ctx: CpuContext, op: te.ComputeOp, place: Place | None) -> None:
    """Copied with vectors: inside a loop of the product, or all at once in parallel.

    Lines that lie along the depth are turned in registers, a tile at a time.
    """
    stage, lanes = ctx.schedule[op.output(0)], ctx.target.lanes(op.output(0).dtype)
    *outer, inner = op.axis
    crossing = find_crossing([[axis] for axis in op.axis], op.body, lanes)
    loops = (tile_crossing(stage, list(op.axis), crossing, lanes) if crossing is not None
             else [*outer, *vectorize_innermost(stage, inner, lanes)])
    if place is not None:
        if crossing is not None and not crossing.narrow:
            stage.reorder(loops[-1], loops[-2])  # a vector of lines at a time, front to back
        stage.compute_at(*place)
    elif elements(op) >= PARALLEL_THRESHOLD:
        parallelize(stage, loops)
