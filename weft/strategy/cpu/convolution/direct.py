"""Direct convolution over blocked channels (NCHW16c), tiled in registers.

Signals, images and volumes alike: the last spatial axis is the row that tiles run along.

A tile is some output positions of one row by some blocks of output channels. Its input pixels are
broadcast one at a time, its weights are vectors, and the reduction over input channels and kernel
positions runs inside it. Rows are copied into a buffer with zeros at their ends first, so that the
hot loop has no guards; rows of the kernel that lie above or below the image are left out.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.ir.types import TensorType, is_static
from weft.op.nn.conv import ConvAttrs, conv_compute
from weft.strategy.analysis import size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, register_blocking
from weft.strategy.cpu.common.padding import schedule_padding
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.cost import blocked_tile
from weft.strategy.cpu.convolution.row_block import BandSize, choose_band
from weft.strategy.cpu.convolution.unblocked import plain_conv, schedule_plain
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.depthwise.blocked import is_depthwise, schedule_depthwise
from weft.strategy.cpu.depthwise.rows import schedule_depthwise_rows
from weft.strategy.cpu.dot_product.convolution import dot_convolution
from weft.strategy.cpu.estimate import unblocked_seconds
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, has_masks, machine_model
from weft.strategy.implementation import Implementation, attrs_of, compute_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CpuTarget
from weft.topi.layout import Layout


def _convolution(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Blocked and plain NCHW layouts get register tiles, any other layout the default schedule."""
    attrs = attrs_of(call, ConvAttrs)
    yield from dot_convolution(call, target)
    name, plain = getattr(call.op, "name", "conv"), "NC" + attrs.spatial
    layout = Layout.parse(attrs.result_layout)
    skipped = attrs.spatial[:-1] if attrs.finite_kernel else ""  # zero times infinity is no zero
    direct = functools.partial(conv_compute, skipped=skipped)
    if layout.name.startswith(plain) and layout.factor_of("C") > 1:
        if is_depthwise(call):
            yield Implementation(f"{name}.cpu.depthwise_{plain.lower()}c", schedule_depthwise)
        else:
            yield Implementation(
                f"{name}.cpu.direct_{plain.lower()}c", schedule_direct,
                direct,
            )
        return
    if not is_depthwise(call) and Layout.parse(attrs.kernel_layout).factor_of("O") > 1:
        yield Implementation(
            f"{name}.cpu.direct_{layout.name.lower()}", schedule_direct,
            direct,
        )
        return
    kernel_layout = "OI" + attrs.spatial
    if (attrs.data_layout, attrs.kernel_layout, layout.name) == (plain, kernel_layout, plain):
        if is_depthwise(call) and has_masks(target):
            yield Implementation(f"{name}.cpu.depthwise_{plain.lower()}", schedule_depthwise_rows)
        yield Implementation(
            f"{name}.cpu.direct_{plain.lower()}", schedule_plain,
            functools.partial(plain_conv, lanes=_lanes_of(call, target)),
        )
    yield Implementation(f"{name}.cpu.generic", schedule_default,
                         seconds=unblocked_seconds(call, target, _multiply_adds(call)))


for _name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
    strategy(_name, target="cpu", complete=True)(_convolution)


def _multiply_adds(call: Call) -> int:
    """Of the convolution: the taps and input channels of a group for each element of the result."""
    result, kernel = call.checked_type, call.args[1].checked_type
    if not (isinstance(result, TensorType) and isinstance(kernel, TensorType)):
        return 0
    if not (is_static(result) and is_static(kernel)):
        return 0
    layout = Layout.parse(attrs_of(call, ConvAttrs).kernel_layout)
    sizes = kernel.concrete_shape
    outputs = sizes[layout.index_of("O")] * max(1, layout.factor_of("O"))
    return math.prod(result.concrete_shape) * math.prod(sizes) // max(1, outputs)


def _lanes_of(call: Call, target: CpuTarget) -> int:
    """Sums in one register."""
    result = call.checked_type
    if not isinstance(result, TensorType):
        raise InternalError("a convolution has no tensor type", where=call.span, got=str(result))
    return target.lanes(result.dtype)


def schedule_direct(ctx: CpuContext) -> None:
    """Tile (channel blocks x row positions) in registers; parallel over bands of rows and channels.

    A task is one slice of the weights over one band of rows (of tiles, where there is one row).
    Bands come first, so that a thread works on the rows that it also wrote in the layer before.
    """
    s = ctx.schedule
    schedule_padding(ctx)
    acc = accumulators(ctx)
    stage = s[ctx.output]
    axes = _axes(ctx, stage)
    tile = blocked_tile(size_of(axes.ow.extent), axes.blocks, axes.block, ctx.target,
                        ctx.output.dtype)
    blocks, block = stage.split(axes.oc, factor=tile.nr_vectors)
    columns, column = stage.split(axes.ow, factor=tile.mr)
    *outer, banded = axes.rows or [columns]
    bands, inside = stage.split(banded, factor=_band(ctx, axes, tile))
    around = [inside, columns] if axes.rows else [inside]
    stage.reorder(axes.n, *outer, bands, blocks, *around, block, column, axes.lane)
    stage.unroll(block)
    stage.unroll(column)
    stage.vectorize(axes.lane)
    task = stage.fuse(axes.n, *outer, bands, blocks)
    if work_of(compute_of(ctx.anchor)) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    s[acc].compute_at(stage, around[-1])
    _order_reduction(ctx, s[acc])


@dataclasses.dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of a stage by their meaning; ``blocks`` blocks of ``block`` channels."""

    n: te.IterVar
    oc: te.IterVar
    rows: list[te.IterVar]
    ow: te.IterVar
    lane: te.IterVar
    blocks: int
    block: int


def _axes(ctx: CpuContext, stage: te.Stage) -> _Axes:
    """Channels that the result does not have in blocks are split as the kernel's are."""
    attrs = attrs_of(ctx.call, ConvAttrs)
    layout, axes = Layout.parse(attrs.result_layout), stage.axis
    *rows, ow = (axes[layout.index_of(letter)] for letter in attrs.spatial)
    n, oc = axes[layout.index_of("N")], axes[layout.index_of("C")]
    place = layout.block_index_of("C")
    if place is not None:
        blocks, block = size_of(oc.extent), size_of(axes[place].extent)
        return _Axes(n, oc, rows, ow, axes[place], blocks, block)
    block = Layout.parse(attrs.kernel_layout).factor_of("O")
    blocks = size_of(oc.extent) // block
    oc, lane = stage.split(oc, factor=block)
    return _Axes(n, oc, rows, ow, lane, blocks, block)


def _order_reduction(ctx: CpuContext, stage: te.Stage) -> None:
    """Rows of the kernel go around its channels: where one is left out, a whole run of weights is.

    The weights that are read then remain long runs, which the hardware fetches ahead.
    """
    axes = _axes(ctx, stage)
    channels, *taps = stage.reduce_axis
    above = len(axes.rows)
    reduction = [*taps[:above], channels, *taps[above:]]
    register_blocking(stage, reduction, [axes.ow], [axes.oc], axes.lane, [axes.n, *axes.rows])


def _band(ctx: CpuContext, axes: _Axes, tile: RegisterTile) -> int:
    """The rows of a task; a signal is one row, whose bands are counted in tiles."""
    attrs, anchor = attrs_of(ctx.call, ConvAttrs), compute_of(ctx.anchor)
    depth = math.prod(size_of(axis.extent) for axis in anchor.reduce_axis)
    taps = math.prod(attrs.kernel_size or ())
    rows, width = [size_of(axis.extent) for axis in axes.rows], size_of(axes.ow.extent)
    if not rows:
        rows, width = [-(-width // tile.mr)], tile.mr
    *images, height = rows
    batch = size_of(axes.n.extent) * math.prod(images)
    outputs = axes.blocks * axes.block
    products = batch * outputs * height * width * depth
    lanes = ctx.target.lanes(ctx.output.dtype)
    return choose_band(
        BandSize(batch, height, -(-axes.blocks // tile.nr_vectors),
                 4 * depth // taps * width * math.prod(attrs.strides), 4 * outputs * depth,
                 products / (machine_model(ctx.target).fma_per_cycle * lanes)),
        ctx.target,
    )
