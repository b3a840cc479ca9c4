"""Minimal filtering over blocked channels: one matrix product for each point, tile by tile.

A task is a band of tile rows. It takes the band's data to the points (that part stays in the
second-level cache), and then for each slice of the output channels computes the products in
registers, interpolates them and writes the band's results, with whatever was fused behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.analysis import computes_below, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import one_tensor, register_blocking
from weft.strategy.cpu.common.padding import schedule_padding
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.cpu.winograd.cost import WinogradPlan, WinogradSize, plan_winograd
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.topi.layout import Layout


@strategy("nn.winograd_conv2d", target="cpu", complete=True)
def winograd_conv2d(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Blocked channels get the schedule below, any other layout the default one."""
    del target
    attrs = attrs_of(call, WinogradConv2DAttrs)
    layout = Layout.parse(attrs.out_layout or attrs.data_layout)
    if layout.name.startswith("NCHW") and layout.factor_of("C") > 1:
        yield Implementation("nn.winograd_conv2d.cpu.nchwc", schedule_winograd)
    else:
        yield Implementation("nn.winograd_conv2d.cpu.generic", schedule_default)


@dataclasses.dataclass(frozen=True, slots=True)
class _Stages:
    """The computes of ``topi.nn.winograd.winograd_conv2d`` by what they hold."""

    rows: te.Tensor
    data: te.Tensor
    product: te.Tensor
    columns: te.Tensor


def _stages_of(ctx: CpuContext) -> _Stages:
    found = {op.name: op.output(0) for op in computes_below((ctx.anchor,))}
    return _Stages(*(found[f"winograd_{name}"] for name in ("rows", "data", "product", "columns")))


def _size_of(stages: _Stages, tile: int) -> WinogradSize:
    batch, tall, blocks, _, _, wide, block = (size_of(x) for x in stages.product.shape)
    channels = size_of(stages.data.shape[2]) * size_of(stages.data.shape[6])
    return WinogradSize(tile, batch, tall, wide, channels, blocks, block)


def schedule_winograd(ctx: CpuContext) -> None:
    """Parallel over bands of tile rows, and over parts of the channels where bands are few."""
    stages = _stages_of(ctx)
    tile = attrs_of(ctx.call, WinogradConv2DAttrs).tile
    schedule_padding(dataclasses.replace(ctx, anchor=stages.rows))
    _inline_behind(ctx)
    stage = ctx.schedule[ctx.output]
    n, oc, oh, ow, lane = stage.axis
    plan = plan_winograd(_size_of(stages, tile), ctx.target)
    band, inside = stage.split(oh, factor=plan.band * tile)
    tile_row, a = stage.split(inside, factor=tile)
    tile_column, b = stage.split(ow, factor=tile)
    part, blocks = stage.split(oc, nparts=plan.parts)
    slices, block = stage.split(blocks, factor=plan.vectors)
    stage.reorder(n, band, part, slices, tile_row, block, tile_column, a, b, lane)
    for axis in (a, b):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(n, band, part)
    if work_of(stages.product.op) >= PARALLEL_THRESHOLD:  # type: ignore[arg-type]
        stage.parallel(task)
    if ctx.anchor is not ctx.output:
        _in_registers(ctx, ctx.anchor, tile_column, unrolled=(2, 3))
    _in_registers(ctx, stages.columns, tile_column, unrolled=(4, 5))
    _schedule_products(ctx, stages.product, slices if plan.by_slice else task, plan)
    _schedule_data(ctx, stages, task)


def _inline_behind(ctx: CpuContext) -> None:
    """Inline what lies between the anchor and the output."""
    below = {id(op) for op in computes_below((ctx.anchor,))}
    for op in computes_below(ctx.outputs):
        if id(op) not in below and op is not ctx.output.op:
            ctx.schedule[op.output(0)].compute_inline()


def _in_registers(
    ctx: CpuContext, tensor: te.Tensor, at: te.IterVar, *, unrolled: tuple[int, ...]
) -> None:
    stage = ctx.schedule[tensor]
    stage.set_scope("local")
    for place in unrolled:
        stage.unroll(stage.axis[place])
    stage.vectorize(stage.axis[-1])
    stage.compute_at(ctx.schedule[ctx.output], at)


def _schedule_products(
    ctx: CpuContext, product: te.Tensor, at: te.IterVar, plan: WinogradPlan
) -> None:
    """All points of one slice: tiles of tile positions by channel blocks, summed in registers."""
    s = ctx.schedule
    sums = one_tensor(s.cache_write(product, "local"))
    stage = s[product]
    n, row, oc, e, f, column, lane = stage.axis
    rows, row = stage.split(row, factor=plan.tile_rows)
    columns, column = stage.split(column, factor=plan.tile_columns)
    blocks, block = stage.split(oc, factor=plan.vectors)
    stage.reorder(n, e, f, blocks, rows, columns, row, block, column, lane)
    for axis in (row, block, column):
        stage.unroll(axis)
    stage.vectorize(lane)
    stage.compute_at(s[ctx.output], at)
    inner = s[sums]
    inner.compute_at(stage, columns)
    n, row, oc, e, f, column, lane = inner.axis
    register_blocking(inner, list(inner.reduce_axis), [row, column], [oc], lane, [n, e, f])


def _schedule_data(ctx: CpuContext, stages: _Stages, task: te.IterVar) -> None:
    """The band's data at the points: a tile's rows, then its columns, a register of channels."""
    s = ctx.schedule
    stage = s[stages.data]
    n, row, block, e, f, column, lane = stage.axis
    piece, lane = stage.split(lane, factor=ctx.target.lanes(str(stages.data.dtype)))
    stage.reorder(n, row, block, column, piece, e, f, lane)
    for axis in (e, f):
        stage.unroll(axis)
    stage.vectorize(lane)
    stage.compute_at(s[ctx.output], task)
    rows = s[stages.rows]
    rows.set_scope("local")
    *_, e, j, lane = rows.axis
    for axis in (e, j):
        rows.unroll(axis)
    rows.vectorize(lane)
    rows.compute_at(stage, piece)
