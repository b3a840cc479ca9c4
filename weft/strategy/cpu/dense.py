"""Products with a constant weight matrix, packed at compile time into panels of columns."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.op.nn.dense import DenseAttrs
from weft.strategy.analysis import size_of
from weft.strategy.cpu.blocking import registers
from weft.strategy.cpu.contraction import accumulators, tile_in_registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD, RegisterTile, choose_tile
from weft.strategy.cpu.matmul import packing_at_run_time
from weft.strategy.implementation import Implementation, ScheduleContext, attrs_of
from weft.strategy.registry import strategy
from weft.target import Target
from weft.topi.layout import Layout


@strategy("nn.dense", target="cpu")
def dense(call: Call, target: Target) -> Iterator[Implementation]:
    """Packed weights are tiled as they are; others are packed at run time first."""
    layout = Layout.parse(attrs_of(call, DenseAttrs).weight_layout)
    if layout.factor_of("N") > 1:
        yield Implementation("nn.dense.cpu.packed", schedule_packed)
        return
    if layout.name in ("NK", "KN"):
        yield from packing_at_run_time("nn.dense", call, target, transpose_b=layout.name == "NK")
    yield Implementation("nn.dense.cpu.generic", schedule_default, cost=1.0)


def schedule_packed(ctx: ScheduleContext) -> None:
    """Tile (rows x panels) in registers, the whole reduction inside; parallel over tiles."""
    s = ctx.schedule
    panel = Layout.parse(attrs_of(ctx.call, DenseAttrs).weight_layout).factor_of("N")
    acc = accumulators(ctx)
    stage = s[ctx.output]
    *rows, columns = stage.axis
    row = stage.fuse(*rows) if len(rows) > 1 else rows[0]
    lanes = ctx.target.lanes(ctx.output.dtype)
    step = registers(panel, lanes)
    count = -(-size_of(columns.extent) // panel)
    tile = choose_tile(size_of(row.extent), count * step, ctx.target, ctx.output.dtype,
                       column_step=step)
    tile = RegisterTile(tile.rows, max(1, tile.vectors // step))
    wide, lane = stage.split(columns, factor=panel)
    panels, inner = stage.split(wide, factor=tile.vectors)
    tall, short = stage.split(row, factor=tile.rows)
    stage.reorder(panels, tall, inner, short, lane)
    stage.unroll(inner)
    stage.unroll(short)
    stage.vectorize(lane)
    task = stage.fuse(panels, tall)
    s[acc].compute_at(stage, task)
    acc_stage = s[acc]
    *acc_rows, acc_columns = acc_stage.axis
    acc_wide, acc_lane = acc_stage.split(acc_columns, factor=panel)
    tile_in_registers(acc_stage, list(acc_stage.reduce_axis), acc_rows, [acc_wide], acc_lane, [])
    work = size_of(row.extent) * size_of(columns.extent) * size_of(
        acc_stage.reduce_axis[0].extent)
    if work >= PARALLEL_THRESHOLD:
        stage.parallel(task)
