"""What attention becomes where a tile of queries would have many lanes without a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir.dtype import float32
from weft.ir.expr import Call, Constant, Expr
from weft.ir.passes import PassContext
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.attention import AttentionAttrs, expand_attention
from weft.strategy.cpu.attention.cost import plan_attention, unfused_cycles
from weft.strategy.cpu.attention.strategy import MAX_ROWS, attention_size
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize
from weft.target import CpuTarget

MAX_MASK = 1 << 20  # elements of a mask made here
WORTH = 0.85  # of the fused time: the estimates are not better than that


def fill_lanes(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """Queries of several heads in one tile, or plain products around a softmax, or nothing else.

    Queries that fill no more than one vector are never plain products: these are slow with so few
    rows.
    """
    query, target, size = types[0], context.target, attention_size(call)
    if size is None or not isinstance(target, CpuTarget) or not isinstance(query, TensorType):
        return None
    if size.queries < target.lanes("float32") and size.group * size.queries > MAX_ROWS:
        return _by_shared_head(call, types)
    if query.dtype is not float32 or size.queries <= target.lanes("float32"):
        return None
    fused = plan_attention(size, target).cycles
    return expand_attention(call) if unfused_cycles(size, target) < WORTH * fused else None


def _by_shared_head(call: Call, types: Sequence[Type]) -> Expr | None:
    """The queries of all heads that share keys as those of one head.

    What each sees of the past is a mask then, the same for each head.
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


legalize("nn.attention", target="cpu")(fill_lanes)
legalize("nn.masked_attention", target="cpu")(fill_lanes)
