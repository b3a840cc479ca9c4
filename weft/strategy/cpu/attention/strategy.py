"""Attention on CPUs: fused, so that its scores never reach memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from weft import te
from weft.ir.dtype import float32
from weft.ir.expr import Call
from weft.ir.types import TensorType, is_static
from weft.op.nn.attention import AS_GOOD_AS_INFINITE, AttentionAttrs
from weft.strategy.cpu.attention.cost import (
    AttentionPlan,
    AttentionSize,
    plan_attention,
    row_cycles,
)
from weft.strategy.cpu.attention.decode import RowLoops
from weft.strategy.cpu.attention.loops import AttentionLoops
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.elementwise.injective import schedule_loops
from weft.strategy.cpu.estimate import unblocked_seconds
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.implementation import (
    Implementation,
    attrs_of,
    compute_of,
)
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.te.tensor import ExternBody, ExternOp
from weft.tir.expr import const, select

MAX_SCORE_BYTES = 4 << 20  # scores of queries that share keys, which are kept for all keys
MAX_ROWS = 8  # queries that share keys; more have work enough to fill tiles


def _attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    name, size = getattr(call.op, "name", "nn.attention"), attention_size(call)
    if size is not None:
        model, plan = machine_model(target), plan_attention(size, target)
        tiles = functools.partial(tiled_attention, plan=plan)
        yield Implementation(f"{name}.cpu.fused", schedule_fused, tiles,
                             model.seconds(plan.cycles))
        rows = size.group * size.queries
        if rows <= MAX_ROWS and 4 * rows * size.keys <= MAX_SCORE_BYTES:
            few = functools.partial(rows_of_attention, size=size, lanes=plan.lanes)
            yield Implementation(f"{name}.cpu.rows", schedule_fused, few,
                                 model.seconds(row_cycles(size, target)))
    yield Implementation(f"{name}.cpu.generic", schedule_default,
                         seconds=unblocked_seconds(call, target, size.flops // 2 if size else 0))


strategy("nn.attention", target="cpu", complete=True)(_attention)
strategy("nn.masked_attention", target="cpu", complete=True)(_attention)


def attention_size(call: Call) -> AttentionSize | None:
    """What a call computes, where the fused loops can."""
    types = [arg.checked_type for arg in call.args]
    if not all(isinstance(t, TensorType) and is_static(t) for t in types):
        return None
    q, k, v = (t for t in types[:3] if isinstance(t, TensorType))
    sizes = (*q.concrete_shape, *k.concrete_shape, *v.concrete_shape)
    if q.dtype.bits > 32 or q.dtype.bits < 16 or 0 in sizes:
        return None
    *heads, queries, depth = q.concrete_shape
    group = heads[-1] // k.concrete_shape[-3] if heads else 1
    return AttentionSize(math.prod(heads), queries, k.concrete_shape[-2], depth,
                         v.concrete_shape[-1], _last_seen(call), group)


def _last_seen(call: Call) -> int | None:
    """The offset behind which keys may be passed over, ``None`` where all have to be read."""
    attrs = attrs_of(call, AttentionAttrs)
    if not attrs.causal or attrs.fill is None:
        return attrs.last_key
    # Rows that see nothing are the mean of the values, and a mask may hide all that is seen.
    is_infinite = attrs.fill <= AS_GOOD_AS_INFINITE and attrs.offset >= 0 and len(call.args) == 3
    return attrs.offset if is_infinite else None


def tiled_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs,
    plan: AttentionPlan,
) -> te.Tensor:
    """Tiles of queries by blocks of keys; keys and values are brought to float32 first.

    ``rest`` is the mask, where there is one, and the attributes.
    """
    attrs, masks, hides = _parted(rest)
    loops = AttentionLoops(plan, attrs, hides)
    return _extern((q, _widened(k), _widened(v), *masks), loops, plan.size)


def rows_of_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs,
    size: AttentionSize, lanes: int,
) -> te.Tensor:
    """Few queries, with all keys and values read once, as they are."""
    attrs, masks, hides = _parted(rest)
    return _extern((q, k, v, *masks), RowLoops(size, attrs, lanes, hides), size)


def _parted(
    rest: Sequence[te.Tensor | AttentionAttrs],
) -> tuple[AttentionAttrs, list[te.Tensor], bool]:
    """The attributes; the mask as numbers, where there is one; whether these hide or are added."""
    attrs = next(x for x in rest if isinstance(x, AttentionAttrs))
    masks = [x for x in rest if isinstance(x, te.Tensor)]
    return attrs, [_as_numbers(x) for x in masks], any(x.dtype.is_bool for x in masks)


def _extern(inputs: Sequence[te.Tensor], loops: ExternBody, size: AttentionSize) -> te.Tensor:
    q, _, v, *_ = inputs
    shape = (*q.shape[:-1], v.shape[-1])
    return te.extern([shape], inputs, loops, [q.dtype], "attention", flops=size.flops)[0]


def _widened(x: te.Tensor) -> te.Tensor:
    if x.dtype is float32:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(float32), name="wide")


def _as_numbers(mask: te.Tensor) -> te.Tensor:
    """What is added to scores as it is; what is not seen as -1, what is as 0."""
    if not mask.dtype.is_bool:
        return _widened(mask)
    seen, unseen = const(0, float32), const(-1, float32)
    return te.compute(mask.shape, lambda *i: select(mask[i], seen, unseen), name="hidden")


def schedule_fused(ctx: CpuContext) -> None:
    """What the body reads is computed in front of it; its own loops are as they are written."""
    body = ctx.anchor.op
    for tensor in body.inputs if isinstance(body, ExternOp) else ():
        if isinstance(tensor.op, te.ComputeOp):
            schedule_loops(ctx.schedule[tensor], tensor, compute_of(tensor).body, ctx.target)
