"""The schedule of depthwise convolutions in the original layout: lanes are positions of a row.

A tile is some vectors of one or more rows of the result, in registers for the whole reduction: each
tap adds a broadcast weight times the shifted row. There is no padded copy. Lanes beyond the border
are masked, and kernel rows that lie beyond it are loops of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import size_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators
from weft.strategy.cpu.common.padding import padding_of
from weft.strategy.cpu.elementwise.schedule import parallelize
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.support.dataclass import dataclass
from weft.tir.transform.masked_tail import MASKED_TAIL

MAX_VECTORS = 8  # accumulators of a tile: twice as many as hide the latency of a multiply-add


@dataclass(frozen=True, slots=True)
class RowTile:
    """The accumulators: ``rows`` of the result by ``vectors`` of each."""

    rows: int
    vectors: int


def row_tile(height: int, width: int, lanes: int) -> RowTile:
    """Tiles of equal width, a whole row if it is short, and as many rows as fit the registers."""
    vectors = -(-width // lanes)
    vectors = -(-vectors // -(-vectors // MAX_VECTORS))
    rows = min(height, max(1, MAX_VECTORS // vectors))
    return RowTile(-(-height // -(-height // rows)), vectors)


def schedule_unblocked_depthwise(ctx: CpuContext) -> None:
    """Parallel over channels, and over row blocks if the channels are few."""
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    pad, acc = padding_of(ctx), accumulators(ctx)
    lanes = ctx.target.lanes(acc.dtype)
    *outer, row = stage.axis
    height = size_of(outer[-1].extent) if len(outer) > 2 else 1
    tile = row_tile(height, size_of(row.extent), lanes)
    outer, inside = _tiles(stage, stage.axis, tile, lanes)
    stage.reorder(*outer, *inside)
    work = math.prod(size_of(axis.extent) for axis in (*stage.axis, *s[acc].reduce_axis))
    if work >= parallel_threshold(ctx.target):
        # The loop over the tiles of a row stays: the accumulators are attached to it.
        outer = [*parallelize(stage, outer[:-1]), outer[-1]]
    sums = s[acc]
    sums.compute_at(stage, outer[-1])
    outer, inside = _tiles(sums, sums.axis, tile, lanes)
    *taps, along = sums.reduce_axis
    # Taps are outside of the tile: consecutive multiply-adds go to different accumulators.
    sums.reorder(*outer, *taps, along, *inside)
    sums.unroll(along)  # kernel rows stay loops, shorter at the border
    if pad is not None:  # taps on the padding are skipped or masked where they are read
        s[pad.output(0)].compute_inline()


def _tiles(
    stage: te.Stage, axes: Sequence[te.IterVar], tile: RowTile, lanes: int
) -> tuple[list[te.IterVar], list[te.IterVar]]:
    """The loops over tiles, and those inside: rows, vectors and lanes, masked beyond the row."""
    *outer, last = axes
    columns, inside = stage.split(last, factor=tile.vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.vectorize(lane)
    stage.pragma(lane, MASKED_TAIL, lanes)
    unrolled = [vector]
    if len(outer) > 2:
        outer[-1], row = stage.split(outer[-1], factor=tile.rows)
        unrolled.insert(0, row)
    for axis in unrolled:
        stage.unroll(axis)
    return [*outer, columns], [*unrolled, lane]
