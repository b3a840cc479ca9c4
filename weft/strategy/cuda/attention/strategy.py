"""The implementations of attention on CUDA."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft import te
from weft.ir.expr import Call
from weft.op.nn.attention import AS_GOOD_AS_INFINITE, AttentionAttrs
from weft.op.nn.cached_attention import CachedAttentionAttrs
from weft.strategy.cuda.attention.decide import (
    AttentionAlgorithm,
    decide_attention,
    decide_cached,
    why_not_flash,
)
from weft.strategy.cuda.attention.flash import FlashLoops
from weft.strategy.cuda.attention.plan import FlashPlan
from weft.strategy.cuda.attention.sources import CachedOperands, DenseOperands
from weft.strategy.cuda.default import schedule_default
from weft.strategy.cuda.estimate import roofline_seconds
from weft.strategy.implementation import Implementation, ScheduleContext, attrs_of
from weft.strategy.registry import strategy
from weft.target import CudaTarget
from weft.tir.buffer import Buffer


@strategy("nn.attention", target="cuda", complete=True)
@strategy("nn.masked_attention", target="cuda", complete=True)
def attention(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """FlashAttention where tensor cores can compute it, and the operator's compute."""
    name = f"{call.op}.cuda"
    plan = decide_attention(call, target).plan.flash
    if plan is not None:
        yield Implementation(
            f"{name}.{AttentionAlgorithm.FLASH}", _own_loops,
            functools.partial(flash_attention, plan=plan, offset=causal_offset(call)),
            decide_attention(call, target).seconds)
    yield _generic(name, call, target)


@strategy("nn.cached_attention", target="cuda", complete=True)
def cached_attention(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    """FlashAttention over the valid positions of caches, and the operator's compute."""
    name, decision = f"{call.op}.cuda", decide_cached(call, target)
    if decision.plan.flash is not None:
        yield Implementation(
            f"{name}.{AttentionAlgorithm.FLASH}", _own_loops,
            functools.partial(flash_cached_attention, plan=decision.plan.flash), decision.seconds)
    yield _generic(name, call, target)


def flash_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs,
    plan: FlashPlan, offset: int | None,
) -> te.Tensor:
    """``nn.attention`` or ``nn.masked_attention``; ``rest`` is the mask, if any, and attributes."""
    attrs = next(x for x in rest if isinstance(x, AttentionAttrs))
    masks = [x for x in rest if isinstance(x, te.Tensor)]

    def source(inputs: tuple[Buffer, ...], out: Buffer) -> DenseOperands:
        query, keys, values, *mask = inputs
        return DenseOperands(attrs, offset, query, keys, values, mask[0] if mask else None, out)

    loops = FlashLoops(plan, q.dtype, source)
    return te.extern([(*q.shape[:-1], v.shape[-1])], (q, k, v, *masks), loops, [q.dtype],
                     "attention")[0]


def flash_cached_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, lengths: te.Tensor,
    extras: tuple[te.Tensor, ...], attrs: CachedAttentionAttrs, *, plan: FlashPlan,
) -> te.Tensor:
    """``nn.cached_attention``."""

    def source(inputs: tuple[Buffer, ...], out: Buffer) -> CachedOperands:
        query, keys, values, valid, *rest = inputs
        named = dict(zip(attrs.extras, rest, strict=True))
        return CachedOperands(attrs.how, query, keys, values, valid, named, out)

    loops = FlashLoops(plan, q.dtype, source)
    return te.extern([(*q.shape[:-1], v.shape[-1])], (q, k, v, lengths, *extras), loops,
                     [q.dtype], "attention")[0]


def causal_offset(call: Call) -> int | None:
    """The offset beyond which keys need not be read; ``None`` if all keys must be read."""
    attrs = attrs_of(call, AttentionAttrs)
    if not attrs.causal or attrs.fill is None:
        return attrs.last_key
    # A finite fill gives a query without visible keys the mean of all values, so that the hidden
    # keys are read as well.
    is_infinite = attrs.fill <= AS_GOOD_AS_INFINITE and attrs.offset >= 0 and len(call.args) == 3
    return attrs.offset if is_infinite else None


def _generic(name: str, call: Call, target: CudaTarget) -> Implementation:
    """The operator's compute. It reads and writes the scores several times."""
    seconds = 10 * roofline_seconds(call, target) if why_not_flash(call) is None \
        else roofline_seconds(call, target)
    return Implementation(f"{name}.{AttentionAlgorithm.GENERIC}", schedule_default,
                          seconds=seconds)


def _own_loops(ctx: ScheduleContext[CudaTarget]) -> None:
    """The loops are written out."""
    del ctx
