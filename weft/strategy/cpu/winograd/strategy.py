"""The implementation of a Winograd convolution with transformed weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from weft.ir.expr import Call
from weft.strategy.cpu.convolution.strategy import unknown_size
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.winograd.decide import decide_winograd_conv2d
from weft.strategy.cpu.winograd.schedule import schedule_winograd
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


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
