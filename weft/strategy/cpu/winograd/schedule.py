"""Winograd convolution over blocked channels: a GEMM over channels for each point of the domain.

A task is a block of tile rows. It transforms the input of these rows, which stays in L2. Then, for
each slice of the output channels, it computes the GEMMs in registers, transforms their results and
writes the rows, with the fused operators after it.
"""

from __future__ import annotations

import dataclasses
import math

from weft import te
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.analysis import computes_below, size_of, work_of
from weft.strategy.cpu.common.blocking import schedule_padding
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import (
    one_tensor,
    register_blocking,
    split_tiles,
    tile_of_axis,
)
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.strategy.cpu.winograd.cost import WinogradPlan
from weft.strategy.implementation import attrs_of, compute_of
from weft.support.dataclass import dataclass
from weft.te import loads_of
from weft.tir import int_value, mentions


@dataclass(frozen=True, slots=True)
class _Stages:
    """The computes of ``topi.nn.winograd.winograd_conv2d``.

    Both transforms are two-dimensional: a pass over one axis of a tile, then one over the other.
    ``input_pass`` and ``output_pass`` are the first passes.
    """

    input_pass: te.Tensor
    input: te.Tensor
    gemm: te.Tensor
    output_pass: te.Tensor


def _stages_of(ctx: CpuContext) -> _Stages:
    found = {op.name: op.output(0) for op in computes_below((ctx.anchor,))}
    return _Stages(*(found[f"winograd_{field.name}"] for field in dataclasses.fields(_Stages)))


def schedule_winograd(ctx: CpuContext, *, plan: WinogradPlan) -> None:
    """Parallel over blocks of tile rows, and over output channels where these blocks are few."""
    stages = _stages_of(ctx)
    tile = attrs_of(ctx.call, WinogradConv2DAttrs).tile
    schedule_padding(dataclasses.replace(ctx, anchor=stages.input_pass))
    _inline_after_anchor(ctx)
    stage = ctx.schedule[ctx.output]
    n, oc, oh, ow, lane = stage.axis
    row_block, inside = stage.split(oh, factor=plan.row_block * tile)
    tile_row, a = stage.split(inside, factor=tile)
    tile_column, b = stage.split(ow, factor=tile)
    split, blocks = stage.split(oc, nparts=plan.channel_splits)
    slices, block = stage.split(blocks, factor=plan.register_blocks)
    # All channel blocks of a slice follow tile by tile: their GEMM results are resident in L2.
    stage.reorder(n, row_block, split, slices, tile_row, block, tile_column, a, b, lane)
    # Unrolled, the row of the transform is a constant, and its zeros and ones cost nothing.
    for axis in (a, b):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(n, row_block, split)
    if work_of(compute_of(stages.gemm)) >= parallel_threshold(ctx.target):
        stage.parallel(task)
    # Fused operators read the output transform from registers.
    if ctx.anchor is not ctx.output:
        _in_registers(ctx, ctx.anchor, tile_column, unrolled=(2, 3), tile=tile)
    _in_registers(ctx, stages.output_pass, tile_column, unrolled=(4, 5))
    # At the slice, the results are transformed while they are in L2; at the task, the weights of
    # each point are read once.
    _schedule_gemm(ctx, stages.gemm, slices if plan.fuses_output else task, plan)
    _schedule_input(ctx, stages, task)


def _inline_after_anchor(ctx: CpuContext) -> None:
    """Inline the stages between the anchor and the output."""
    below = {id(op) for op in computes_below((ctx.anchor,))}
    for op in computes_below(ctx.outputs):
        if id(op) not in below and op is not ctx.output.op:
            ctx.schedule[op.output(0)].compute_inline()


def _in_registers(
    ctx: CpuContext, tensor: te.Tensor, at: te.IterVar, *, unrolled: tuple[int, ...],
    tile: int = 1,
) -> None:
    """``tile`` is the extent of symbolic axes among the unrolled ones."""
    stage = ctx.schedule[tensor]
    stage.set_scope("local")
    split = [tile_of_axis(stage, stage.axis[axis], tile) for axis in unrolled]
    outer = [loop for loops, _ in split for loop in loops]
    if outer:
        stage.reorder(*outer, *(inner for _, inner in split), stage.axis[-1])
    for _, axis in split:
        stage.unroll(axis)
    stage.vectorize(stage.axis[-1])
    stage.compute_at(ctx.schedule[ctx.output], at)


def _schedule_gemm(
    ctx: CpuContext, gemm: te.Tensor, at: te.IterVar, plan: WinogradPlan
) -> None:
    """All points of one slice: register tiles of image tiles by channel blocks."""
    s = ctx.schedule
    sums = one_tensor(s.cache_write(gemm, "local"))
    stage = s[gemm]
    n, row, oc, e, f, column, lane = stage.axis
    rows, row = stage.split(row, factor=plan.register_rows)
    columns, column = split_tiles(stage, column, plan.register_columns)
    blocks, block = stage.split(oc, factor=plan.register_blocks)
    # Points are outermost: the weights of one point serve all tiles of the task.
    stage.reorder(n, e, f, blocks, rows, columns, row, block, column, lane)
    for axis in (row, block, column):
        stage.unroll(axis)
    stage.vectorize(lane)
    stage.compute_at(s[ctx.output], at)
    inner = s[sums]
    inner.compute_at(stage, columns)
    n, row, oc, e, f, column, lane = inner.axis
    tiles, column = tile_of_axis(inner, column, plan.register_columns)
    tall, row = tile_of_axis(inner, row, plan.register_rows)
    register_blocking(inner, list(inner.reduce_axis), [row, column], [oc], lane,
                      [n, *tall, e, f, *tiles])
    if not plan.fuses_output:
        _prefetch_next_weights(s, inner, plan)


def _prefetch_next_weights(s: te.Schedule, sums: te.Stage, plan: WinogradPlan) -> None:
    """While the tiles use the weights of some channel blocks at one point, load the next blocks.

    The transformed weights are larger than L2. Blocks and then points follow in memory; a task with
    a share of the channels reads the same blocks of the next point. A fused output transform visits
    them in another order.
    """
    _, row, _, _, _, column, _ = sums.axis
    heights, widths = -(-plan.row_block // plan.register_rows), int_value(column.extent)
    if widths is None or heights * -(-widths // plan.register_columns) < 2:
        return
    n = sums.axis[0].var
    weight = next(load.producer for load in loads_of(sums.require_compute("prefetch").body)
                  if not any(mentions(index, n) for index in load.indices))
    point = math.prod(map(size_of, weight.shape[2:])) if plan.channel_splits > 1 else None
    if s[weight].is_placeholder:
        sums.prefetch_next_block(
            weight, sums.reduce_axis[1],
            [(row, plan.register_rows, heights), (column, plan.register_columns, None)],
            within=sums.reduce_axis[0], distance=point)


def _schedule_input(ctx: CpuContext, stages: _Stages, task: te.IterVar) -> None:
    """The input transform of a task: tile by tile, a register of channels at a time."""
    s = ctx.schedule
    stage = s[stages.input]
    n, row, block, e, f, column, lane = stage.axis
    vector, lane = stage.split(lane, factor=ctx.target.lanes(str(stages.input.dtype)))
    # All points of a tile are inside one vector of channels: they share its pixels.
    stage.reorder(n, row, block, column, vector, e, f, lane)
    for axis in (e, f):
        stage.unroll(axis)
    stage.vectorize(lane)
    stage.compute_at(s[ctx.output], task)
    first = s[stages.input_pass]
    first.set_scope("local")
    *_, e, j, lane = first.axis
    for axis in (e, j):
        first.unroll(axis)
    first.vectorize(lane)
    first.compute_at(stage, vector)
