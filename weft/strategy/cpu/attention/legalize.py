"""Rewrites of attention calls: heads that share keys merged, or matmuls and a softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, PassContext, TensorType, Type, is_static
from weft.op.nn.attention import AttentionAttrs, expand_attention
from weft.strategy.cpu.attention.applies import attention_shape, underfills_lanes, why_only_generic
from weft.strategy.cpu.attention.decide import AttentionAlgorithm, decide_attention
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize
from weft.target import CpuTarget

MAX_MASK = 1 << 20  # elements of a causal mask that the rewrite materializes as a constant


@legalize("nn.attention", target="cpu")
@legalize("nn.masked_attention", target="cpu")
def legalize_attention(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """The call that fills vector lanes, or the unfused form; ``None`` to keep the call."""
    target = context.target
    if not isinstance(target, CpuTarget) or why_only_generic(call) is not None:
        return None
    if underfills_lanes(attention_shape(call), target):
        return _merge_heads(call, types)
    is_unfused = decide_attention(call, target).algorithm == AttentionAlgorithm.UNFUSED
    return expand_attention(call) if is_unfused else None


def _merge_heads(call: Call, types: Sequence[Type]) -> Expr | None:
    """The heads that share keys as queries of one head, so that they fill vector lanes.

    Causality then is an explicit mask, repeated for each head; ``None`` if it would be too large
    or if the call's mask differs between heads or queries.
    """
    attrs, (query, key) = attrs_of(call, AttentionAttrs), types[:2]
    if not isinstance(query, TensorType) or not isinstance(key, TensorType) or query.ndim < 3:
        return None
    (*batch, heads, rows, depth), (*_, shared, keys, _) = query.concrete_shape, key.concrete_shape
    if heads == shared or (len(types) > 3 and not _is_for_all_queries(types[3])):
        return None
    group = heads // shared
    q, *rest = call.args
    if attrs.causal and attrs.offset < keys - 1:
        if len(types) > 3 or group * rows * keys > MAX_MASK:
            return None
        past = np.tile(np.tri(rows, keys, attrs.offset, dtype=bool), (group, 1))
        rest.append(Constant(past, span=call.span))
    merged = op.reshape(q, newshape=(*batch, shared, group * rows, depth), span=call.span)
    form = op.nn.attention if len(rest) == 2 else op.nn.masked_attention
    result = Call(form, (merged, *rest), attrs.replace(causal=False), span=call.span)
    width = types[2].concrete_shape[-1] if isinstance(types[2], TensorType) else depth
    return op.reshape(result, newshape=(*query.concrete_shape[:-1], width), span=call.span)


def _is_for_all_queries(mask: Type) -> bool:
    """Whether a mask is the same for all heads and queries of a batch."""
    if not isinstance(mask, TensorType) or not is_static(mask):
        return False
    return all(size == 1 for size in mask.concrete_shape[-3:-1])
