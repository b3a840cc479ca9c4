"""Schedules of pooling: windows reduced in registers, with lanes along the contiguous axis."""

from __future__ import annotations

import math

from weft import te
from weft.op.nn.pool import PoolAttrs
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cpu.common.blocking import padding_of, pads_innermost
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, one_tensor
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.elementwise.schedule import (
    parallelize,
    pays_in_parallel,
    vectorize_innermost,
)
from weft.strategy.cpu.machine_model import has_masks
from weft.strategy.cpu.pooling.decide import UNROLLED_TAPS
from weft.strategy.extents import is_fixed, size_of
from weft.strategy.implementation import attrs_of, compute_of
from weft.target import CpuTarget
from weft.topi.layout import Layout

COLUMNS_IN_L1 = 3  # a block of columns may fill at most L1 / COLUMNS_IN_L1, or it is evicted
MAX_BLOCK_ROWS = 8


def schedule_columns(ctx: CpuContext, *, rows: int = 0) -> None:
    """Block by block of result rows: first the columns that the block needs, then its windows.

    A block has ``rows`` rows; 0: as many as L1 holds.
    """
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    columns, reduction = (op.output(0) for op in computes_below((ctx.anchor,)) if is_reduction(op))
    pad = padding_of(ctx)
    acc = accumulators(ctx, reduction)
    width = Layout.parse(attrs_of(ctx.call, PoolAttrs).layout).index_of("W")
    lanes, masks = ctx.target.lanes(acc.dtype), has_masks(ctx.target)
    _schedule_tables(ctx)
    *outer, row = stage.axis[:width]
    inside = stage.axis[width:]
    rows = rows or _rows_per_block(columns, len(inside), size_of(row.extent), ctx.target)
    block, row = stage.split(row, factor=rows)
    around = [*inside[:-1], *vectorize_innermost(stage, inside[-1], lanes, masks=masks)]
    outer.append(block)
    task = stage.fuse(*outer)
    if pays_in_parallel([compute_of(columns)], ctx.target):
        stage.parallel(task)
    # Columns belong to one row of results, so that tasks do not recompute each other's.
    s[columns].compute_at(stage, task)
    # Columns accumulate in a register and are stored once.
    column = one_tensor(s.cache_write(columns, "local"))
    *across, along = s[columns].axis
    across += vectorize_innermost(s[columns], along, lanes, masks=masks)
    s[column].compute_at(s[columns], across[-1])
    _in_registers(ctx, column)
    s[acc].compute_at(stage, around[-1] if around else row)
    _in_registers(ctx, acc)
    if pad is not None:
        s[pad.output(0)].compute_inline()


def _rows_per_block(columns: te.Tensor, inside: int, rows: int, target: CpuTarget) -> int:
    """Result rows whose columns are computed together; the columns stay in L1.

    If W is vectorized (``inside`` is 1), windows read columns at other offsets than vectors of
    columns were stored, and such a load waits until the store has left the store buffer: several
    rows keep it busy meanwhile. If lanes are channels, loads match stores and one row is enough.
    """
    if inside > 1:
        return 1
    row_bytes = size_of(columns.shape[-1]) * columns.dtype.itemsize
    fitting = target.l1_bytes // COLUMNS_IN_L1 // max(1, row_bytes)
    blocks = max(1, -(-rows // max(1, min(MAX_BLOCK_ROWS, fitting))))
    return -(-rows // blocks)


def _schedule_tables(ctx: CpuContext) -> None:
    """Compute the tables of tap counts of an average once, before the windows."""
    for op in computes_below((ctx.anchor,)):
        if op.role is te.StageRole.LOOKUP_TABLE:
            stage = ctx.schedule[op.output(0)]
            vectorize_innermost(stage, op.axis[0], ctx.target.lanes(op.output(0).dtype))


def _in_registers(ctx: CpuContext, tensor: te.Tensor) -> None:
    """Taps around one vector of results, whose accumulator stays in registers; few are unrolled."""
    stage, lanes = ctx.schedule[tensor], ctx.target.lanes(tensor.dtype)
    around = vectorize_innermost(stage, stage.axis[-1], lanes, masks=has_masks(ctx.target))
    vector = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    taps = list(stage.reduce_axis)
    # Taps directly around the vector: the accumulator does not leave its register.
    stage.reorder(*stage.axis[:-1], *around, *taps, *vector)
    is_small = math.prod(size_of(tap.extent) for tap in taps) <= UNROLLED_TAPS
    if is_small and all(is_fixed(tap.extent) for tap in taps):
        for tap in taps:
            stage.unroll(tap)


def schedule_window(ctx: CpuContext) -> None:
    """All taps of a window around one vector of results; parallel over the outer loops."""
    reductions = [op for op in computes_below((ctx.anchor,)) if is_reduction(op)]
    if len(reductions) != 1:
        schedule_default(ctx)
        return
    s = ctx.schedule
    pad = padding_of(ctx)
    acc = accumulators(ctx, reductions[0].output(0))
    _schedule_tables(ctx)
    stage = s[ctx.output]
    *outer, inner = stage.axis
    loops = [*outer, *vectorize_innermost(stage, inner, ctx.target.lanes(acc.dtype),
                                          masks=has_masks(ctx.target))]
    around = loops
    if pays_in_parallel([s[acc].require_compute("pays_in_parallel")], ctx.target):
        around = parallelize(stage, loops)
    s[acc].compute_at(stage, around[-1])
    _in_registers(ctx, acc)
    if pad is not None:
        _schedule_pad(ctx, pad)


def _schedule_pad(ctx: CpuContext, pad: te.ComputeOp) -> None:
    """Inline the padding, or copy the data with its border if the vectorized axis is padded.

    Inlined bounds checks are cheap: loop partitioning peels off the iterations that reach the
    border. Along the vectorized axis they would be checks per lane.
    """
    tensor = pad.output(0)
    if not pads_innermost(pad):
        ctx.schedule[tensor].compute_inline()
        return
    *outer, inner = pad.axis
    stage, lanes = ctx.schedule[tensor], ctx.target.lanes(tensor.dtype)
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    if pays_in_parallel([pad], ctx.target):
        parallelize(stage, loops)
