"""Winograd convolution with transformed weights: its implementation, and its layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from weft.ir import Call, TensorType, Type, is_static
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.cpu.common.blocking import block_for, registers
from weft.strategy.cpu.common.register_tile import (
    MAX_ROWS,
    MAX_VECTORS,
    RegisterTile,
    fits_registers,
)
from weft.strategy.cpu.convolution.strategy import unknown_size
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.winograd.cost import (
    MAX_OPEN_COLUMNS,
    MAX_SPLITS,
    WinogradPlan,
    row_blocks,
)
from weft.strategy.cpu.winograd.decide import decide_winograd_conv2d, winograd_shape
from weft.strategy.cpu.winograd.schedule import schedule_winograd
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import alter_layout, strategy
from weft.strategy.space import Knob, Point, Space, divisors_up_to, flag
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.transform.layout.layout_choice import LayoutChoice


@strategy("nn.winograd_conv2d", target="cpu", complete=True)
def winograd_conv2d(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Blocked channels get the schedule below, any other layout the default one."""
    decision = decide_winograd_conv2d(call, target)
    if decision is None:
        raise unknown_size(call)
    plan = decision.plan
    schedule = schedule_default if plan is None else partial(schedule_winograd, plan=plan)
    name = f"nn.winograd_conv2d.cpu.{decision.algorithm}"
    space = None if plan is None else partial(winograd_space, name, call, plan, target)
    yield Implementation(name, schedule, seconds=decision.seconds, space=space)


def winograd_space(
    name: str, call: Call, plan: WinogradPlan, target: CpuTarget
) -> Space:
    """The tasks and the register tile of the GEMMs."""
    data, weight = (argument.checked_type for argument in call.args)
    if not (isinstance(data, TensorType) and isinstance(weight, TensorType)):
        raise unknown_size(call)
    shape = winograd_shape(attrs_of(call, WinogradConv2DAttrs), data, weight)
    step = registers(shape.block, target.lanes(shape.dtype))
    most = min(shape.tile_columns, MAX_OPEN_COLUMNS if shape.has_open_row else MAX_ROWS)
    knobs = (
        Knob.of("rows", row_blocks(shape), plan.row_block),
        Knob.of("splits", divisors_up_to(shape.blocks, MAX_SPLITS), plan.channel_splits),
        Knob.of("tile_rows", range(1, 5), plan.register_rows),
        Knob.of("tile_columns", range(1, most + 1), plan.register_columns),
        Knob.of("vectors", range(1, min(shape.blocks, MAX_VECTORS) + 1), plan.register_blocks),
        flag("fuses_output", plan.fuses_output))

    def at(point: Point) -> Implementation:
        rows, splits, high, wide, vectors, fuses = (int(point[knob.name]) for knob in knobs)
        is_known = (high, wide, vectors) == (
            plan.register_rows, plan.register_columns, plan.register_blocks)
        fits = fits_registers(RegisterTile(high * wide, vectors * step), target)
        if not (fits or is_known) or high > rows or vectors > shape.blocks // splits:
            raise ScheduleError("the register tile exceeds the registers or the task",
                                got=f"{high}x{wide}x{vectors}")
        made = replace(plan, row_block=rows, channel_splits=splits, register_rows=high,
                       register_columns=wide, register_blocks=vectors, fuses_output=bool(fuses))
        return Implementation(name, partial(schedule_winograd, plan=made))

    return Space(name, knobs, at)


@alter_layout("nn.winograd_conv2d", target="cpu")
def winograd_layout(call: Call, types: Sequence[Type], target: CpuTarget) -> LayoutChoice | None:
    """Blocked channels for data and result; the weights of a block are contiguous."""
    attrs, data, weight = attrs_of(call, WinogradConv2DAttrs), types[0], types[1]
    if attrs.data_layout != "NCHW" or not isinstance(data, TensorType):
        return None
    channels = data.shape[1]
    if not isinstance(weight, TensorType) or not is_static(weight) or not isinstance(channels, int):
        return None
    block = block_for(weight.concrete_shape[2], target)
    data_layout = f"NCHW{block_for(channels, target)}c"
    kernel_layout, out_layout = f"HWOI{block}o", f"NCHW{block}c"
    return LayoutChoice(
        attrs.replace(data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout),
        (("NCHW", data_layout), ("HWOI", kernel_layout)),
        out_layout,
    )
