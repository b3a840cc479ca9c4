"""The implementations of attention: one per candidate that runs as a kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft import te
from weft.ir import Call
from weft.strategy.common import attention as common
from weft.strategy.cpu.attention.compute import (
    blocked_backward,
    decode_attention,
    fused_attention,
    streamed_loops,
)
from weft.strategy.cpu.attention.decide import (
    AttentionAlgorithm,
    AttentionCandidate,
    BackwardAlgorithm,
    backward_offset,
    decide_backward,
    decide_streamed,
    kernel_candidates,
)
from weft.strategy.cpu.attention.small_gemm import SmallGemm
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.elementwise.schedule import schedule_loops
from weft.strategy.implementation import Implementation, compute_of
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.te import ExternOp


def schedule_attention(ctx: CpuContext) -> None:
    """Compute the operands (conversions, masks) in loops of the injective family, before the body.

    The body reads whole operands, so they cannot be inlined into it.
    """
    body = ctx.anchor.op
    for tensor in body.inputs if isinstance(body, ExternOp) else ():
        if isinstance(tensor.op, te.ComputeOp):
            schedule_loops(ctx.schedule[tensor], tensor, compute_of(tensor).body, ctx.target)


@strategy("nn.attention", target="cpu", complete=True)
@strategy("nn.masked_attention", target="cpu", complete=True)
def attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Fused tiles, decode attention, and the operator's compute under the default schedule."""
    for candidate in kernel_candidates(call, target):
        yield _implementation(call, candidate, target)


@strategy("nn.cached_attention", target="cpu", complete=True)
def cached_attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Streamed attention, or the operator's compute under the default schedule."""
    candidate = decide_streamed(call, target).chosen
    name = f"{call.op}.cpu.{candidate.algorithm}"
    if candidate.algorithm == AttentionAlgorithm.GENERIC:
        yield Implementation(name, schedule_default, seconds=candidate.seconds)
    else:
        compute = functools.partial(
            common.cached_attention, loops=functools.partial(streamed_loops, target=target))
        yield Implementation(name, schedule_attention, compute, candidate.seconds)


def _implementation(
    call: Call, candidate: AttentionCandidate, target: CpuTarget
) -> Implementation:
    plan, name = candidate.plan, f"{call.op}.cpu.{candidate.algorithm}"
    if plan.shape is None:
        return Implementation(name, schedule_default, seconds=candidate.seconds)
    compute: functools.partial[te.Tensor]
    if candidate.algorithm == AttentionAlgorithm.STREAMED:
        compute = functools.partial(common.dense_attention, offset=common.causal_offset(call),
                                    loops=functools.partial(streamed_loops, target=target))
        return Implementation(name, schedule_attention, compute, candidate.seconds)
    if plan.tiles is not None:
        compute = functools.partial(fused_attention, plan=plan.tiles)
    else:
        compute = functools.partial(decode_attention, shape=plan.shape,
                                    lanes=target.lanes("float32"))
    return Implementation(name, schedule_attention, compute, candidate.seconds)


@strategy("nn.attention_backward", target="cpu", complete=True)
@strategy("nn.masked_attention_backward", target="cpu", complete=True)
def attention_backward(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Blocks of queries by blocks of keys, or the operator's compute under the default schedule."""
    candidate = decide_backward(call, target).chosen
    name = f"{call.op}.cpu.{candidate.algorithm}"
    if candidate.algorithm == BackwardAlgorithm.GENERIC:
        yield Implementation(name, schedule_default, seconds=candidate.seconds)
    else:
        compute = functools.partial(blocked_backward, offset=backward_offset(call),
                                    gemm=SmallGemm.of(target))
        yield Implementation(name, schedule_attention, compute, candidate.seconds)
