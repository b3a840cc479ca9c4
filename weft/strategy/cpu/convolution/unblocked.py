"""Convolution over images as they are written (NCHW): lanes are positions, rows output channels.

Nothing changes its layout. The pixels of a row are the vectors here and the weights the scalars, so
a tile is some output channels by some vectors of positions.
"""

from __future__ import annotations

import dataclasses
import math

from weft import te
from weft.ir.attrs import Attrs
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import computes_below, is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, register_blocking
from weft.strategy.cpu.common.padding import schedule_padding
from weft.strategy.cpu.common.register_tile import RegisterTile, choose_tile
from weft.strategy.cpu.convolution.row_block import BandSize, choose_band
from weft.strategy.cpu.convolution.rows import conv_rows
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, machine_model
from weft.strategy.implementation import attrs_of
from weft.support.errors import InternalError
from weft.target import CpuTarget


def plain_conv(data: te.Tensor, kernel: te.Tensor, attrs: Attrs, *, lanes: int) -> te.Tensor:
    """The compute that ``schedule_plain`` wants."""
    if not isinstance(attrs, ConvAttrs):
        raise InternalError(f"a convolution got {type(attrs).__name__}")
    return conv_rows(data, kernel, strides=attrs.strides, padding=attrs.padding,
                     dilation=attrs.dilation, groups=attrs.groups,
                     out_dtype=attrs.out_dtype or data.dtype, lanes=lanes,
                     skips=attrs.finite_kernel)


def arrival_cycles(taps: int, target: CpuTarget) -> float:
    """How long a vector of pixels takes to arrive, which all taps then read."""
    model = machine_model(target)
    return model.vector_bytes / model.l2_bandwidth / taps


def plain_tile(channels: int, vectors: int, taps: int, target: CpuTarget) -> RegisterTile:
    """Output channels of one group (``rows``) by vectors of positions."""
    return choose_tile(channels, vectors, target,
                       vector_cycles=arrival_cycles(taps, target))


def schedule_plain(ctx: CpuContext) -> None:
    """Parallel over slices of the channels and bands of rows (of tiles, where there is one row)."""
    s = ctx.schedule
    sums = next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))
    schedule_padding(dataclasses.replace(ctx, anchor=sums.output(0)))
    acc = accumulators(ctx, sums.output(0))
    stage = s[ctx.output]
    n, oc, *places = stage.axis
    if len(places) + 2 > len(sums.axis):
        places = [stage.fuse(*places)]
    *rows, ow = places
    lanes = ctx.target.lanes(sums.output(0).dtype)
    width, channels = size_of(sums.axis[-1].extent), size_of(oc.extent)
    groups = attrs_of(ctx.call, ConvAttrs).groups
    taps = math.prod(size_of(axis.extent) for axis in sums.reduce_axis[1:])
    tile = plain_tile(channels // groups, width // lanes, taps, ctx.target)
    # Channels of two groups read different pixels: no tile has some of both.
    group, within = stage.split(oc, nparts=groups)
    slices, channel = stage.split(within, factor=tile.mr)
    columns, inside = stage.split(ow, factor=tile.nr_vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    *outer, banded = rows or [columns]
    bands, band = stage.split(banded, factor=_band(ctx, sums, tile, lanes))
    around = [band, columns] if rows else [band]
    stage.reorder(n, *outer, bands, group, slices, *around, channel, vector, lane)
    for axis in (channel, vector):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(n, *outer, bands, group, slices)
    if work_of(sums) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    s[acc].compute_at(stage, around[-1])
    acc_stage = s[acc]
    an, ac, *a_rows, aw = acc_stage.axis
    acc_vector, acc_lane = acc_stage.split(aw, factor=lanes)
    register_blocking(acc_stage, list(acc_stage.reduce_axis), [ac], [acc_vector], acc_lane,
                      [an, *a_rows])


def _band(ctx: CpuContext, sums: te.ComputeOp, tile: RegisterTile, lanes: int) -> int:
    """The rows of a task; a signal is one row, whose bands are counted in tiles."""
    batch, channels, *rows, width = (size_of(axis.extent) for axis in sums.axis)
    depth, *taps = (size_of(axis.extent) for axis in sums.reduce_axis)
    step = math.prod(attrs_of(ctx.call, ConvAttrs).strides) if rows else 1
    if not rows:
        rows, width = [-(-width // (tile.nr_vectors * lanes))], tile.nr_vectors * lanes
    *images, height = rows
    batch *= math.prod(images)
    products = batch * channels * height * width * depth * math.prod(taps)
    cycles = products / (machine_model(ctx.target).fma_per_cycle * lanes)
    return choose_band(
        BandSize(batch, height, -(-channels // tile.mr), 4 * depth * width * step,
                 4 * channels * depth * math.prod(taps), cycles),
        ctx.target,
    )
