"""Pooling: the window is reduced in registers, lanes are channels (or positions along a row)."""

from __future__ import annotations

from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.contraction import accumulators
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD
from weft.strategy.cpu.padding import padding_of, pads_innermost
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import strategy
from weft.target import Target

UNROLLED_TAPS = 16


def _windowed(call: Call, target: Target) -> Iterator[Implementation]:
    del target
    name = getattr(call.op, "name", "pool")
    yield Implementation(f"{name}.cpu.window", schedule_window)


for _axes in (1, 2, 3):
    strategy(f"nn.max_pool{_axes}d", target="cpu")(_windowed)
    strategy(f"nn.avg_pool{_axes}d", target="cpu")(_windowed)


def schedule_window(ctx: ScheduleContext) -> None:
    """Parallel over all but the innermost loops, the window's sum or maximum in a register."""
    reductions = [op for op in computes_below((ctx.anchor,)) if is_reduction(op)]
    if len(reductions) != 1:
        schedule_default(ctx)
        return
    s = ctx.schedule
    pad = padding_of(ctx)
    acc = accumulators(ctx, reductions[0].output(0))
    stage = s[ctx.output]
    *outer, inner = stage.axis
    loops = [*outer, *vectorize_innermost(stage, inner, ctx.target.lanes(ctx.output.dtype))]
    band = loops
    if work_of(s[acc].require_compute("work_of")) >= PARALLEL_THRESHOLD:
        band = parallelize(stage, loops)
    s[acc].compute_at(stage, band[-1])
    acc_stage = s[acc]
    *acc_outer, acc_inner = acc_stage.axis
    around = vectorize_innermost(acc_stage, acc_inner, ctx.target.lanes(ctx.output.dtype))
    vector = [axis for axis in acc_stage.leaf_iter_vars if axis in acc_stage.kinds]
    taps = list(acc_stage.reduce_axis)
    acc_stage.reorder(*acc_outer, *around, *taps, *vector)
    count = 1
    for tap in taps:
        count *= size_of(tap.extent)
    if count <= UNROLLED_TAPS:
        for tap in taps:
            acc_stage.unroll(tap)
    if pad is not None:
        _place_padding(ctx, pad)


def _place_padding(ctx: ScheduleContext, pad: te.ComputeOp) -> None:
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
