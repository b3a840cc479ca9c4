"""Pooling: the window is reduced in registers, lanes are channels (or positions along a row)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from weft import te
from weft.ir.expr import Call
from weft.op.nn.pool import PoolAttrs
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, one_tensor
from weft.strategy.cpu.common.padding import padding_of, pads_innermost
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.elementwise.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, has_masks
from weft.strategy.implementation import Implementation, attrs_of, compute_of
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool

UNROLLED_TAPS = 16
BAND_BYTES = 16 << 10
MOST_ROWS = 8


def _max_by_columns(x: te.Tensor, attrs: PoolAttrs) -> te.Tensor:
    return topi_pool.max_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True)


def _avg_by_columns(x: te.Tensor, attrs: Any) -> te.Tensor:
    return topi_pool.avg_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True,
                              count_include_pad=attrs.count_include_pad)


def _pools(by_columns: Callable[..., te.Tensor]) -> Callable[..., Iterator[Implementation]]:
    def implementations(call: Call, target: CpuTarget) -> Iterator[Implementation]:
        del target
        name = getattr(call.op, "name", "pool")
        if _share_columns(attrs_of(call, PoolAttrs)):
            yield Implementation(f"{name}.cpu.columns", schedule_columns, compute=by_columns)
        yield Implementation(f"{name}.cpu.window", schedule_window)
    return implementations


for _axes in (1, 2, 3):
    strategy(f"nn.max_pool{_axes}d", target="cpu", complete=True)(_pools(_max_by_columns))
    strategy(f"nn.avg_pool{_axes}d", target="cpu", complete=True)(_pools(_avg_by_columns))


def _share_columns(attrs: PoolAttrs) -> bool:
    """Whether columns are worth a result in between: not where windows are small and apart."""
    *others, last = topi_pool.axis_windows(attrs.window)
    rows = math.prod(a.taps for a in others)
    if rows < 2 or last.taps < 2 or Layout.parse(attrs.layout).index_of("W") == 0:
        return False
    return last.taps > last.stride or rows * last.taps >= UNROLLED_TAPS or last.before > 0


def schedule_columns(ctx: CpuContext) -> None:
    """Row by row of the result: the columns that it needs, then windows of them."""
    s, stage = ctx.schedule, ctx.schedule[ctx.output]
    columns, reduction = (op.output(0) for op in computes_below((ctx.anchor,)) if is_reduction(op))
    pad = padding_of(ctx)
    acc = accumulators(ctx, reduction)
    place = Layout.parse(attrs_of(ctx.call, PoolAttrs).layout).index_of("W")
    lanes, masks = ctx.target.lanes(acc.dtype), has_masks(ctx.target)
    _schedule_tables(ctx)
    *outer, row = stage.axis[:place]
    inside = stage.axis[place:]
    band, row = stage.split(row, factor=_rows_a_band(columns, len(inside), size_of(row.extent)))
    around = [*inside[:-1], *vectorize_innermost(stage, inside[-1], lanes, masks=masks)]
    outer.append(band)
    task = stage.fuse(*outer)
    if work_of(compute_of(columns)) >= PARALLEL_THRESHOLD:
        stage.parallel(task)
    s[columns].compute_at(stage, task)
    column = one_tensor(s.cache_write(columns, "local"))
    *across, along = s[columns].axis
    across += vectorize_innermost(s[columns], along, lanes, masks=masks)
    s[column].compute_at(s[columns], across[-1])
    _in_registers(ctx, column)
    s[acc].compute_at(stage, around[-1] if around else row)
    _in_registers(ctx, acc)
    if pad is not None:
        s[pad.output(0)].compute_inline()


def _rows_a_band(columns: te.Tensor, inside: int, rows: int) -> int:
    """Rows whose columns are computed together, and stay in the first-level cache.

    What is read soon after it was written, at other vectors than it was written, waits for the
    write. Where lanes are channels, vectors are the same and one row is enough.
    """
    if inside > 1:
        return 1
    row_bytes = size_of(columns.shape[-1]) * columns.dtype.itemsize
    bands = -(-rows // max(1, min(MOST_ROWS, BAND_BYTES // row_bytes)))
    return -(-rows // bands)


def _schedule_tables(ctx: CpuContext) -> None:
    """What each window of an average counts for is computed once, ahead of all."""
    for op in computes_below((ctx.anchor,)):
        if op.role is te.StageRole.LOOKUP_TABLE:
            stage = ctx.schedule[op.output(0)]
            vectorize_innermost(stage, op.axis[0], ctx.target.lanes(op.output(0).dtype))


def _in_registers(ctx: CpuContext, tensor: te.Tensor) -> None:
    """The window innermost but for a vector of results, unrolled where it is small."""
    stage, lanes = ctx.schedule[tensor], ctx.target.lanes(tensor.dtype)
    around = vectorize_innermost(stage, stage.axis[-1], lanes, masks=has_masks(ctx.target))
    vector = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    taps = list(stage.reduce_axis)
    stage.reorder(*stage.axis[:-1], *around, *taps, *vector)
    if math.prod(size_of(tap.extent) for tap in taps) <= UNROLLED_TAPS:
        for tap in taps:
            stage.unroll(tap)


def schedule_window(ctx: CpuContext) -> None:
    """Parallel over all but the innermost loops, the window's sum or maximum in a register."""
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
    band = loops
    if work_of(s[acc].require_compute("work_of")) >= PARALLEL_THRESHOLD:
        band = parallelize(stage, loops)
    s[acc].compute_at(stage, band[-1])
    _in_registers(ctx, acc)
    if pad is not None:
        _place_padding(ctx, pad)


def _place_padding(ctx: CpuContext, pad: te.ComputeOp) -> None:
    """Padding is read where it is needed, unless lanes would: then it is a copy with a border.

    Where rows and columns of loops reach the border, loop partition peels them off.
    """
    tensor = pad.output(0)
    if not pads_innermost(pad):
        ctx.schedule[tensor].compute_inline()
        return
    *outer, inner = pad.axis
    stage, lanes = ctx.schedule[tensor], ctx.target.lanes(tensor.dtype)
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    if elements(pad) >= PARALLEL_THRESHOLD:
        parallelize(stage, loops)
