"""Depthwise convolution over blocked channels: every channel on its own, so lanes are channels.

There is no operand to broadcast: each step multiplies a vector of pixels by a vector of weights.
A tile is a run of positions along a row, long enough to hide the latency of the accumulators, and
the taps along a row are unrolled, so that neighbouring positions share the pixels they load. There
is no padded copy: the tiles and kernel rows that reach the border are loops of their own.
"""

from __future__ import annotations

import math

from weft.ir.expr import Call
from weft.ir.types import TensorType
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import size_of
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, register_blocking
from weft.strategy.cpu.common.padding import padding_of, schedule_padding
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.implementation import attrs_of
from weft.support.errors import InternalError

ROW_TILES = (14, 8, 7, 6, 5, 4)
ROWS_A_TASK = 8


def is_depthwise(call: Call) -> bool:
    """Whether every group has one input channel and one output channel."""
    weight = call.args[1].checked_type
    if not isinstance(weight, TensorType):
        raise InternalError("a kernel has no tensor type", where=call.span, got=str(weight))
    attrs = attrs_of(call, ConvAttrs)
    groups = attrs.groups
    return groups > 1 and weight.shape[1] == 1 and attrs.channels in (None, groups)


def schedule_depthwise(ctx: CpuContext) -> None:
    """Parallel over channel blocks and bands of rows."""
    s = ctx.schedule
    pad = padding_of(ctx)
    schedule_padding(ctx) if pad is None else None
    acc = accumulators(ctx)
    stage = s[ctx.output]
    n, oc, *places, ow, lane = stage.axis
    width = size_of(ow.extent)
    work = size_of(n.extent) * size_of(oc.extent) * math.prod(size_of(a.extent) for a in places)
    outer, inner = places[:-1], places[-1:]
    if inner:
        bands, row = stage.split(inner[0], factor=ROWS_A_TASK)
        outer, inner = [*outer, bands], [row]
    columns, column = stage.split(ow, factor=_row_tile(width, registers(
        size_of(lane.extent), ctx.target.lanes(acc.dtype)), ctx.target.vector_registers))
    stage.reorder(n, oc, *outer, *inner, columns, column, lane)
    stage.unroll(column)
    stage.vectorize(lane)
    task = stage.fuse(n, oc, *outer)
    if work * width >= PARALLEL_THRESHOLD // 64:
        stage.parallel(task)
    s[acc].compute_at(stage, columns)
    acc_stage = s[acc]
    an, ac, *a_rows, aw, alane = acc_stage.axis
    taps = list(acc_stage.reduce_axis)
    register_blocking(acc_stage, taps, [aw], [], alane, [an, ac, *a_rows])
    for tap in taps[len(places):]:  # rows of the kernel stay loops, shorter near the border
        acc_stage.unroll(tap)
    if pad is not None:
        s[pad.output(0)].compute_inline()


def _row_tile(width: int, step: int, vector_registers: int) -> int:
    """Positions per tile: the longest that fits the registers and leaves little over."""
    fitting = [t for t in ROW_TILES if t * step <= vector_registers // 2 and t <= width]
    if not fitting:
        return min(width, max(1, vector_registers // (2 * step)))
    return min(fitting, key=lambda t: (-(-width // t) * t - width, -t))
