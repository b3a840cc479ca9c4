"""The implementations of attention: one per candidate that runs as a kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft.ir.expr import Call
from weft.strategy.cpu.attention.compute import decode_attention, fused_attention
from weft.strategy.cpu.attention.decide import AttentionCandidate, kernel_candidates
from weft.strategy.cpu.attention.schedule import schedule_attention
from weft.strategy.cpu.default import schedule_default
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


@strategy("nn.attention", target="cpu", complete=True)
@strategy("nn.masked_attention", target="cpu", complete=True)
def attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Fused tiles, decode attention, and the operator's compute under the default schedule."""
    for candidate in kernel_candidates(call, target):
        yield _implementation(f"{call.op}.cpu.{candidate.algorithm}", candidate, target)


def _implementation(
    name: str, candidate: AttentionCandidate, target: CpuTarget
) -> Implementation:
    plan = candidate.plan
    if plan.shape is None:
        return Implementation(name, schedule_default, seconds=candidate.seconds)
    if plan.tiles is not None:
        compute = functools.partial(fused_attention, plan=plan.tiles)
    else:
        compute = functools.partial(decode_attention, shape=plan.shape,
                                    lanes=target.lanes("float32"))
    return Implementation(name, schedule_attention, compute, candidate.seconds)
