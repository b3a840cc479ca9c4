"""The schedule of depthwise convolutions over blocked channels: lanes are channels.

No operand is broadcast: each step multiplies a vector of pixels by a vector of weights. A tile is a
run of positions along a row, long enough to hide the latency of the accumulators. The taps along a
row are unrolled, so that neighbouring positions share the pixels they load. There is no padded
copy: the tiles and kernel rows that reach the border are loops of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import size_of
from weft.strategy.cpu.common.blocking import (
    MAX_BLOCK,
    padding_of,
    registers,
    schedule_padding,
)
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import (
    accumulators,
    register_blocking,
    split_tiles,
    tile_of_axis,
)
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.elementwise.schedule import parallelize
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import int_value
from weft.tir.transform.masked_tail import MASKED_TAIL

ROW_TILES = (14, 8, 7, 6, 5, 4)  # positions of a tile; 7 and 14 divide the usual image sizes
OPEN_ROW_TILE = 7  # of a row whose width is symbolic
ROWS_PER_TASK = 8
OPERATIONS_OF_A_POSITION = 64  # of a block of channels: its lanes times most of the taps


def schedule_blocked_depthwise(
    ctx: CpuContext, *, tile: RegisterTile | None = None, row_block: int = ROWS_PER_TASK,
    unrolls: bool = True,
) -> None:
    """Parallel over channel blocks and row blocks.

    ``tile`` has ``mr`` positions of a row; with ``unrolls`` the taps along a row are unrolled.

    A block of all channels, as beside convolutions by dot products, is cut into vectors.
    """
    s = ctx.schedule
    pad = padding_of(ctx)
    # Without padding this only inlines the other producers of the operands.
    schedule_padding(ctx) if pad is None else None
    acc = accumulators(ctx)
    stage = s[ctx.output]
    n, oc, *rows, ow, lane = stage.axis
    lanes = ctx.target.lanes(acc.dtype)
    is_cut = size_of(lane.extent) > MAX_BLOCK
    blocks = [n, oc]
    if is_cut:
        vectors, lane = stage.split(lane, factor=lanes)
        blocks = [n, oc, vectors]
    width = int_value(ow.extent)
    work = math.prod(size_of(axis.extent) for axis in (*blocks, *rows))
    outer, inner = rows[:-1], rows[-1:]
    if inner:
        row_blocks, row = stage.split(inner[0], factor=row_block)
        outer, inner = [*outer, row_blocks], [row]
    positions = block_tile(width, size_of(lane.extent), lanes, ctx.target) if tile is None \
        else tile.mr
    columns, column = split_tiles(stage, ow, positions)
    stage.reorder(*blocks, *outer, *inner, columns, column, lane)
    stage.unroll(column)
    stage.vectorize(lane)
    task = stage.fuse(*blocks, *outer)
    if work * size_of(ow.extent) >= parallel_threshold(ctx.target) // OPERATIONS_OF_A_POSITION:
        stage.parallel(task)
    s[acc].compute_at(stage, columns)
    acc_stage = s[acc]
    an, ac, *a_rows, aw, alane = acc_stage.axis
    taps = list(acc_stage.reduce_axis)
    tiles, aw = tile_of_axis(acc_stage, aw, positions)
    register_blocking(acc_stage, taps, [aw], [], alane, [an, ac, *a_rows, *tiles])
    for tap in taps[len(rows):] if unrolls else ():  # kernel rows stay loops, shorter at the border
        acc_stage.unroll(tap)
    if pad is not None:  # taps on the padding are skipped or masked where they are read
        s[pad.output(0)].compute_inline()


def block_tile(width: int | None, block: int, lanes: int, target: CpuTarget) -> int:
    """Positions per tile: the longest of those with the fewest positions beyond the row."""
    step, vector_registers = registers(min(block, lanes) if block > MAX_BLOCK else block, lanes), \
        target.vector_registers
    # Accumulators fill half of the registers; the others hold pixels and weights.
    if width is None:
        return min(OPEN_ROW_TILE, max(1, vector_registers // (2 * step)))
    fitting = [t for t in ROW_TILES if t * step <= vector_registers // 2 and t <= width]
    if not fitting:
        return min(width, max(1, vector_registers // (2 * step)))
    return min(fitting, key=lambda t: (-(-width // t) * t - width, -t))


MAX_VECTORS = 8  # accumulators of a tile: twice as many as hide the latency of a multiply-add
SHARING_VECTORS = 2  # of a row, where the rows of a tile share the pixels that they load
MAX_STEPS = 256  # multiply-adds of a tile whose window is unrolled


@dataclass(frozen=True, slots=True)
class RowTile:
    """The accumulators: ``rows`` of the result by ``vectors`` of each."""

    rows: int
    vectors: int


def row_tile(height: int, width: int, lanes: int, row_stride: int) -> RowTile:
    """Tiles of equal width, a whole row if it is short, and as many rows as fit the registers.

    Without a stride, neighbouring rows of the result read the same pixels: a tile then has at least
    four rows, where there are so many.
    """
    most = SHARING_VECTORS if row_stride == 1 and height > 1 else MAX_VECTORS
    vectors = -(-width // lanes)
    vectors = -(-vectors // -(-vectors // most))
    rows = min(height, max(1, MAX_VECTORS // vectors))
    return RowTile(-(-height // -(-height // rows)), vectors)


def unrolled_taps(taps: Sequence[int], tile: RowTile) -> int:
    """How many taps are unrolled: the window if the code stays small, else those along a row."""
    steps = tile.rows * tile.vectors * math.prod(taps)
    return math.prod(taps) if steps <= MAX_STEPS else taps[-1]


def schedule_unblocked_depthwise(
    ctx: CpuContext, *, tile: RegisterTile | None = None, row_stride: int = 1,
    unroll: int | None = None,
) -> None:
    """Parallel over channels, and over row blocks if the channels are few.

    ``tile`` has ``mr`` rows, all of which a task computes. ``unroll`` is the number of taps that
    are unrolled: 1, those along a row, or all, so that the rows of a tile share what they load.
    """
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    pad, acc = padding_of(ctx), accumulators(ctx)
    lanes = ctx.target.lanes(acc.dtype)
    *outer, row = stage.axis
    height = size_of(outer[-1].extent) if len(outer) > 2 else 1
    rows = (row_tile(height, size_of(row.extent), lanes, row_stride) if tile is None
            else RowTile(tile.mr, tile.nr_vectors))
    outer, inside = _tiles(stage, stage.axis, rows, lanes)
    stage.reorder(*outer, *inside)
    work = math.prod(size_of(axis.extent) for axis in (*stage.axis, *s[acc].reduce_axis))
    if work >= parallel_threshold(ctx.target):
        # The loop over the tiles of a row stays: the accumulators are attached to it.
        outer = [*parallelize(stage, outer[:-1]), outer[-1]]
    sums = s[acc]
    sums.compute_at(stage, outer[-1])
    outer, inside = _tiles(sums, sums.axis, rows, lanes)
    taps = list(sums.reduce_axis)
    # Taps are outside of the tile: consecutive multiply-adds go to different accumulators.
    sums.reorder(*outer, *taps, *inside)
    sizes = [size_of(tap.extent) for tap in taps]
    is_open = any(int_value(axis.extent) is None for axis in stage.axis[2:])
    if unroll is None:
        unroll = sizes[-1] if is_open else unrolled_taps(sizes, rows)
    # Beside the border, kernel rows are loops of other lengths.
    for tap in taps if unroll > sizes[-1] else taps[-1:]:
        if unroll > 1:
            sums.unroll(tap)
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
