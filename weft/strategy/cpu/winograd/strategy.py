"""Winograd convolution with transformed weights: its implementation, and its layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from weft.ir import Call, TensorType, Type, is_static
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.convolution.strategy import unknown_size
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.winograd.decide import decide_winograd_conv2d
from weft.strategy.cpu.winograd.schedule import schedule_winograd
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import alter_layout, strategy
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
    yield Implementation(f"nn.winograd_conv2d.cpu.{decision.algorithm}", schedule,
                         seconds=decision.seconds)


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
