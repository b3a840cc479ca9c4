"""The implementations of attention on CUDA."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft.ir import Call
from weft.strategy.common import attention as common
from weft.strategy.cuda.attention.decide import (
    AttentionAlgorithm,
    decide_attention,
    decide_cached,
    why_not_flash,
)
from weft.strategy.cuda.attention.flash import FlashLoops
from weft.strategy.cuda.default import schedule_default
from weft.strategy.cuda.estimate import roofline_seconds
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import strategy
from weft.target import CudaTarget


@strategy("nn.attention", target="cuda", complete=True)
@strategy("nn.masked_attention", target="cuda", complete=True)
def attention(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """FlashAttention where tensor cores can compute it, and the operator's compute."""
    name = f"{call.op}.cuda"
    plan = decide_attention(call, target).plan.flash
    if plan is not None:
        yield Implementation(
            f"{name}.{AttentionAlgorithm.FLASH}", _own_loops,
            functools.partial(common.dense_attention, offset=common.causal_offset(call),
                              loops=functools.partial(FlashLoops, plan)),
            decide_attention(call, target).seconds)
    yield _generic(name, call, target)


@strategy("nn.cached_attention", target="cuda", complete=True)
def cached_attention(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """FlashAttention over the valid positions of caches, and the operator's compute."""
    name, decision = f"{call.op}.cuda", decide_cached(call, target)
    if decision.plan.flash is not None:
        yield Implementation(
            f"{name}.{AttentionAlgorithm.FLASH}", _own_loops,
            functools.partial(common.cached_attention,
                              loops=functools.partial(FlashLoops, decision.plan.flash)),
            decision.seconds)
    yield _generic(name, call, target)


def _generic(name: str, call: Call, target: CudaTarget) -> Implementation:
    """The operator's compute. It reads and writes the scores several times."""
    seconds = 10 * roofline_seconds(call, target) if why_not_flash(call) is None \
        else roofline_seconds(call, target)
    return Implementation(f"{name}.{AttentionAlgorithm.GENERIC}", schedule_default,
                          seconds=seconds)


def _own_loops(ctx: ScheduleContext[CudaTarget]) -> None:
    """The loops are written out."""
    del ctx
