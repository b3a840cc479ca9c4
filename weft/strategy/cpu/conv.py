"""Direct convolution over blocked channels (NCHW16c), tiled in registers.

Signals, images and volumes alike: the last spatial axis is the row that tiles run along.

A tile is some output positions of one row by some blocks of output channels. Its input pixels are
broadcast one at a time, its weights are vectors, and the reduction over input channels and kernel
positions runs inside it. Padding is copied into a buffer first, so that the hot loop has no guards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import size_of, work_of
from weft.strategy.cpu.blocking import registers
from weft.strategy.cpu.contraction import accumulators, tile_in_registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.depthwise_conv import is_depthwise, schedule_depthwise
from weft.strategy.cpu.dot_product_conv import dot_convolution
from weft.strategy.cpu.machine import (
    FAR_BYTES_PER_CYCLE,
    FMA_PER_CYCLE,
    PARALLEL_THRESHOLD,
    RegisterTile,
    choose_tile,
    imbalance,
)
from weft.strategy.cpu.padding import schedule_padding
from weft.strategy.implementation import Implementation, ScheduleContext, attrs_of, compute_of
from weft.strategy.registry import strategy
from weft.target import Target
from weft.topi.layout import Layout


def _convolution(call: Call, target: Target) -> Iterator[Implementation]:
    """Blocked and plain NCHW layouts get register tiles, any other layout the default schedule."""
    attrs = attrs_of(call, ConvAttrs)
    yield from dot_convolution(call, target)
    name, plain = getattr(call.op, "name", "conv"), "NC" + attrs.spatial
    layout = Layout.parse(attrs.result_layout)
    if layout.name.startswith(plain) and layout.factor_of("C") > 1:
        if is_depthwise(call):
            yield Implementation(f"{name}.cpu.depthwise_{plain.lower()}c", schedule_depthwise)
        else:
            yield Implementation(f"{name}.cpu.direct_{plain.lower()}c", schedule_direct)
        return
    kernel_layout = "OI" + attrs.spatial
    if (attrs.data_layout, attrs.kernel_layout, layout.name) == (plain, kernel_layout, plain):
        yield Implementation(f"{name}.cpu.direct_{plain.lower()}", schedule_plain)
    yield Implementation(f"{name}.cpu.generic", schedule_default, cost=1.0)


for _name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
    strategy(_name, target="cpu")(_convolution)


def schedule_direct(ctx: ScheduleContext) -> None:
    """Tile (channel blocks x row positions) in registers; parallel over bands of rows and channels.

    A task is one slice of the weights over one band of rows (of tiles, where there is one row).
    Bands come first, so that a thread works on the rows that it also wrote in the layer before.
    """
    s = ctx.schedule
    schedule_padding(ctx)
    acc = accumulators(ctx)
    stage = s[ctx.output]
    n, oc, *rows, ow, lane = stage.axis
    tile = _tile(ctx, size_of(oc.extent), size_of(ow.extent), size_of(lane.extent))
    blocks, block = stage.split(oc, factor=tile.vectors)
    columns, column = stage.split(ow, factor=tile.rows)
    *outer, banded = rows or [columns]
    bands, inside = stage.split(banded, factor=_band(ctx, acc, tile))
    around = [inside, columns] if rows else [inside]
    stage.reorder(n, *outer, bands, blocks, *around, block, column, lane)
    stage.unroll(block)
    stage.unroll(column)
    stage.vectorize(lane)
    task = stage.fuse(n, *outer, bands, blocks)
    if work_of(compute_of(ctx.anchor)) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    s[acc].compute_at(stage, around[-1])
    _order_reduction(ctx, acc)


def schedule_plain(ctx: ScheduleContext) -> None:
    """NCHW as it is: lanes are positions along a row, rows of the tile are output channels.

    For convolutions whose channels do not make blocks (a single output channel, say). The pixels
    are the vectors here and the weights the scalars.
    """
    s = ctx.schedule
    schedule_padding(ctx)
    acc = accumulators(ctx)
    stage = s[ctx.output]
    n, oc, *rows, ow = stage.axis
    lanes = ctx.target.lanes(ctx.output.dtype)
    width, channels = size_of(ow.extent), size_of(oc.extent)
    groups = attrs_of(ctx.call, ConvAttrs).groups
    tile = choose_tile(channels // groups, -(-width // lanes), ctx.target, ctx.output.dtype)
    slices, channel = stage.split(oc, factor=tile.rows)
    columns, inside = stage.split(ow, factor=tile.vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.reorder(n, slices, *rows, columns, channel, vector, lane)
    for axis in (channel, vector):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(n, slices, *(rows or [columns]))
    if work_of(compute_of(ctx.anchor)) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    s[acc].compute_at(stage, columns if rows else task)
    acc_stage = s[acc]
    an, ac, *a_rows, aw = acc_stage.axis
    acc_vector, acc_lane = acc_stage.split(aw, factor=lanes)
    tile_in_registers(acc_stage, list(acc_stage.reduce_axis), [ac], [acc_vector], acc_lane,
                      [an, *a_rows])


def _order_reduction(ctx: ScheduleContext, acc: te.Tensor) -> None:
    stage = ctx.schedule[acc]
    n, oc, *rows, ow, lane = stage.axis
    tile_in_registers(stage, list(stage.reduce_axis), [ow], [oc], lane, [n, *rows])


def _tile(ctx: ScheduleContext, blocks: int, width: int, block: int) -> RegisterTile:
    """The register tile in channel blocks (``vectors``) and output positions (``rows``)."""
    lanes = ctx.target.lanes(ctx.output.dtype)
    step = registers(block, lanes)
    tile = choose_tile(width, blocks * step, ctx.target, ctx.output.dtype, column_step=step)
    return RegisterTile(tile.rows, max(1, tile.vectors // step))


def _band(ctx: ScheduleContext, acc: te.Tensor, tile: RegisterTile) -> int:
    """How many rows to walk with one slice of the weights: a divisor of the image's height.

    Within a band the pixels are read once for each slice of the weights, so they should fit the
    second-level cache; between bands all weights are read again. Against the traffic from beyond
    that cache stands the balance: few tasks leave some threads waiting for others. Both are
    estimated in cycles. Of equals the tallest band wins that still leaves two of them. A signal
    is one row, whose bands are counted in tiles.
    """
    batch, oc, *rows_outer, width, lane = (size_of(axis.extent) for axis in ctx.schedule[acc].axis)
    depth = math.prod(size_of(axis.extent) for axis in ctx.schedule[acc].reduce_axis)
    attrs = attrs_of(ctx.call, ConvAttrs)
    if not rows_outer:
        rows_outer, width = [-(-width // tile.rows)], tile.rows
    *images, height = rows_outer
    batch *= math.prod(images)
    near = ctx.target.l2_bytes // 2
    weights = 4 * oc * lane * depth
    row_bytes = 4 * depth // math.prod(attrs.kernel_size or ()) * width * math.prod(attrs.strides)
    slices = -(-oc // tile.vectors)
    lanes = ctx.target.lanes(ctx.output.dtype)
    arithmetic = batch * oc * lane * height * width * depth / (FMA_PER_CYCLE * lanes)

    def cost(rows: int) -> tuple[float, bool, int]:
        bands = height // rows
        pixels = row_bytes * height * (slices if row_bytes * rows > near else 1)
        far = batch * (pixels + weights * (bands if weights > near else 1))
        cycles = arithmetic * imbalance(batch * bands * slices) + far / FAR_BYTES_PER_CYCLE
        return cycles, bands < 2, -rows

    return min((rows for rows in range(1, height + 1) if height % rows == 0), key=cost)
