"""The schedule of direct convolutions over blocked channels (NCHW16c), tiled in registers.

It serves signals, images and volumes: the last spatial axis is the row that tiles run along.

A tile is some output positions of one row by some blocks of output channels. Its input pixels are
broadcast one at a time, its weights are vectors, and the reduction over input channels and kernel
positions runs inside it. Rows are first copied into a buffer with zeros at their ends, so that the
hot loop needs no guards; kernel rows above or below the image are skipped.
"""

from __future__ import annotations

import dataclasses

from weft import te
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import computes_below, is_reduction, size_of, work_of
from weft.strategy.cpu.common.blocking import schedule_padding
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import (
    accumulators,
    register_blocking,
    split_tiles,
    tile_of_axis,
)
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.elementwise.schedule import vectorize_innermost
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.strategy.implementation import attrs_of, compute_of
from weft.support.dataclass import dataclass
from weft.support.errors import ScheduleError
from weft.te import loads_of
from weft.tir import mentions
from weft.topi.layout import Layout


def schedule_blocked(
    ctx: CpuContext, *, tile: RegisterTile, row_block: int, prefetches: bool = False,
    channels_inside: bool = False, unroll: int = 1,
) -> None:
    """Register tiles of positions by channel blocks; parallel over row blocks and channels.

    A task is one slice of the weights over one block of rows (of tiles, if there is one row). Row
    blocks come first, so that a thread reads the rows that it wrote in the layer before. With
    ``prefetches`` a task loads the next slice into L2.
    """
    s = ctx.schedule
    schedule_padding(ctx)
    acc = accumulators(ctx)
    stage = s[ctx.output]
    axes = _axes(ctx, stage)
    blocks, block = stage.split(axes.oc, factor=tile.nr_vectors)
    columns, column = split_tiles(stage, axes.ow, tile.mr)
    *outer, row = axes.rows or [columns]
    row_blocks, row = stage.split(row, factor=row_block)
    inner = [row, columns] if axes.rows else [row]
    # The slice of the weights is outside of the rows: all rows of the block use it from L2.
    stage.reorder(axes.n, *outer, row_blocks, blocks, *inner, block, column, axes.lane)
    stage.unroll(block)
    stage.unroll(column)
    stage.vectorize(axes.lane)
    task = stage.fuse(axes.n, *outer, row_blocks, blocks)
    if work_of(compute_of(ctx.anchor)) >= parallel_threshold(ctx.target):
        stage.parallel(task)
    # The operators that are fused behind read a tile of sums from registers.
    s[acc].compute_at(stage, inner[-1])
    axes = _axes(ctx, s[acc])
    _order_reduction(s[acc], axes, tile, channels_inside=channels_inside, unroll=unroll)
    if prefetches:
        _prefetch_next_slice(ctx, s[acc], axes, tile, row_block)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of a stage by meaning: ``blocks`` blocks of ``block`` channels, ``lane`` in each."""

    n: te.IterVar
    oc: te.IterVar
    rows: list[te.IterVar]
    ow: te.IterVar
    lane: te.IterVar
    blocks: int
    block: int


def _axes(ctx: CpuContext, stage: te.Stage) -> _Axes:
    """Channels of an unblocked result are split into the blocks of the kernel."""
    attrs = attrs_of(ctx.call, ConvAttrs)
    layout, axes = Layout.parse(attrs.result_layout), stage.axis
    *rows, ow = (axes[layout.index_of(letter)] for letter in attrs.spatial)
    n, oc = axes[layout.index_of("N")], axes[layout.index_of("C")]
    lane_index = layout.block_index_of("C")
    if lane_index is not None:
        lane = axes[lane_index]
        return _Axes(n, oc, rows, ow, lane, size_of(oc.extent), size_of(lane.extent))
    # Channels-last: the channels of a position are neighbours, so that a block of them is a vector.
    block = Layout.parse(attrs.kernel_layout).factor_of("O")
    blocks = size_of(oc.extent) // block
    oc, lane = stage.split(oc, factor=block)
    return _Axes(n, oc, rows, ow, lane, blocks, block)


def _order_reduction(
    stage: te.Stage, axes: _Axes, tile: RegisterTile, *, channels_inside: bool, unroll: int
) -> None:
    """Kernel rows are outside of the input channels, with ``channels_inside`` all taps.

    A kernel row that is skipped then skips one long run of weights, and the others remain long
    runs, which the hardware prefetches.
    """
    channels, *taps = stage.reduce_axis
    above = len(taps) if channels_inside else len(axes.rows)
    reduction = [*taps[:above], channels, *taps[above:]]
    tiles, column = tile_of_axis(stage, axes.ow, tile.mr)
    _check_unroll(reduction[-1], unroll)
    register_blocking(stage, reduction, [column], [axes.oc], axes.lane,
                      [axes.n, *axes.rows, *tiles], unroll)


def _check_unroll(axis: te.IterVar, unroll: int) -> None:
    if size_of(axis.extent) % unroll:
        raise ScheduleError(f"{unroll} steps do not divide the innermost reduction",
                            got=f"{axis.var.name} of {axis.extent}")


def _prefetch_next_slice(
    ctx: CpuContext, acc: te.Stage, axes: _Axes, tile: RegisterTile, row_block: int
) -> None:
    """While the tiles of positions use a slice of the weights, load the next slice."""
    channels, *taps = acc.reduce_axis
    kernel = _kernel_in_blocks(ctx, acc, axes)
    if kernel is None:
        return
    runs = ([(axes.rows[-1], 1, row_block), (axes.ow, tile.mr, None)] if axes.rows
            else [(axes.ow, tile.mr, row_block)])
    acc.prefetch_next_block(kernel, channels, runs, within=taps[0] if axes.rows else channels)


def _kernel_in_blocks(ctx: CpuContext, acc: te.Stage, axes: _Axes) -> te.Tensor | None:
    """The kernel, if it lies in memory slice after slice and is not computed by the program."""
    if not attrs_of(ctx.call, ConvAttrs).kernel_layout.startswith("O"):
        return None
    n = axes.n.var
    found = [load.producer for load in loads_of(acc.require_compute("prefetch").body)
             if not any(mentions(index, n) for index in load.indices)]
    return found[0] if found and ctx.schedule[found[0]].is_placeholder else None


def packed_pixels(ctx: CpuContext) -> te.ComputeOp | None:
    """The stage that packs pixels into panels; ``None`` where they are read in place."""
    return next((op for op in computes_below((ctx.anchor,))
                 if op.role is te.StageRole.PACKED_B), None)


def schedule_unblocked(
    ctx: CpuContext, *, tile: RegisterTile, row_block: int, unroll: int = 1
) -> None:
    """Parallel over row blocks (blocks of tiles, if there is one row) and slices of channels.

    Where the compute packs pixels, a task packs one panel and computes all its channels.
    """
    s = ctx.schedule
    sums = next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))
    # The anchor leaves out excess columns; the padded copy is an operand of the sum below it.
    schedule_padding(dataclasses.replace(ctx, anchor=sums.output(0)))
    acc = accumulators(ctx, sums.output(0))
    stage = s[ctx.output]
    n, oc, *spatial = stage.axis
    if len(spatial) + 2 > len(sums.axis):  # the positions of a pointwise one are a row
        spatial = [stage.fuse(*spatial)]
    *rows, ow = spatial
    lanes = ctx.target.lanes(sums.output(0).dtype)
    # Channels of two groups read different pixels: no tile spans both.
    group, within = stage.split(oc, nparts=attrs_of(ctx.call, ConvAttrs).groups)
    slices, channel = stage.split(within, factor=tile.mr)
    columns, inside = stage.split(ow, factor=tile.nr_vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    *outer, row = rows or [columns]
    row_blocks, row = stage.split(row, factor=row_block)
    inner = [row, columns] if rows else [row]
    panels = packed_pixels(ctx)
    around = [n, *outer, row_blocks]
    around, inner = ([*around, *inner], [group, slices]) if panels else (
        [*around, group, slices], inner)
    stage.reorder(*around, *inner, channel, vector, lane)
    for axis in (channel, vector):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(*around)
    if work_of(sums) >= parallel_threshold(ctx.target):
        stage.parallel(task)
    s[acc].compute_at(stage, inner[-1])
    if panels is not None:
        packing = s[panels.output(0)]
        vectorize_innermost(packing, panels.axis[-1], lanes)
        packing.compute_at(stage, task)
    acc_stage = s[acc]
    an, ac, *a_rows, aw = acc_stage.axis
    tiles, aw = tile_of_axis(acc_stage, aw, tile.nr_vectors * lanes)
    acc_vector, acc_lane = acc_stage.split(aw, factor=lanes)
    # Taps are inside the input channels: they read the same rows, shifted, while these are in L1.
    _check_unroll(acc_stage.reduce_axis[-1], unroll)
    register_blocking(acc_stage, list(acc_stage.reduce_axis), [ac], [acc_vector], acc_lane,
                      [an, *a_rows, *tiles], unroll)
