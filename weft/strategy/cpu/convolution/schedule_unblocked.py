"""The schedule of convolutions in the original layout (NCHW): lanes are positions of a row.

No operand changes its layout. Vectors are pixels of a row and the weights are broadcast, so a tile
is some output channels by some vectors of positions.
"""

from __future__ import annotations

import dataclasses

from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import computes_below, is_reduction, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, register_blocking, tile_of_axis
from weft.strategy.cpu.common.padding import schedule_padding
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.strategy.implementation import attrs_of


def schedule_unblocked(ctx: CpuContext, *, tile: RegisterTile, row_block: int) -> None:
    """Parallel over row blocks (blocks of tiles, if there is one row) and slices of channels."""
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
    stage.reorder(n, *outer, row_blocks, group, slices, *inner, channel, vector, lane)
    for axis in (channel, vector):
        stage.unroll(axis)
    stage.vectorize(lane)
    task = stage.fuse(n, *outer, row_blocks, group, slices)
    if work_of(sums) >= parallel_threshold(ctx.target):
        stage.parallel(task)
    s[acc].compute_at(stage, inner[-1])
    acc_stage = s[acc]
    an, ac, *a_rows, aw = acc_stage.axis
    tiles, aw = tile_of_axis(acc_stage, aw, tile.nr_vectors * lanes)
    acc_vector, acc_lane = acc_stage.split(aw, factor=lanes)
    # Taps are inside the input channels: they read the same rows, shifted, while these are in L1.
    register_blocking(acc_stage, list(acc_stage.reduce_axis), [ac], [acc_vector], acc_lane,
                      [an, *a_rows, *tiles])
