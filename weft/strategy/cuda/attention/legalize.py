"""Rewrites of attention calls on CUDA: products around a softmax, and its gradient as products."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.ir import AnyDim, Call, Dim, Expr, PassContext, TensorType, Tuple, TupleType, Type, const
from weft.ir.dtype import DType, float32
from weft.op.gradients import tensor_type
from weft.op.nn.attention import AttentionAttrs, ScoreParts, expand_attention, score_parts
from weft.strategy.cuda.attention.decide import AttentionAlgorithm, decide_attention
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize
from weft.target import CudaTarget


@legalize("nn.attention", target="cuda")
@legalize("nn.masked_attention", target="cuda")
def legalize_attention(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """Products around a softmax where that is the decision; ``None`` to keep the call."""
    del types
    target = context.target
    if not isinstance(target, CudaTarget):
        return None
    is_unfused = decide_attention(call, target).algorithm == AttentionAlgorithm.UNFUSED
    return expand_attention(call) if is_unfused else None


@legalize("nn.attention_backward", target="cuda")
@legalize("nn.masked_attention_backward", target="cuda")
def legalize_backward(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """The gradient of attention as five products; ``None`` for sizes that are not known.

    With the weights ``p`` and ``dp = dy vT``, the gradient of the scores is
    ``p * (dp - sum(dy * y))`` (Dao, "FlashAttention", 2022, appendix B). The heads that share keys
    are rows of one product, which adds their gradients.
    """
    del context
    if any(isinstance(d, AnyDim) or d == 0 for t in types if isinstance(t, TensorType)
           for d in t.shape):
        return None
    attrs, (dy, y, q, k, v, *masks) = attrs_of(call, AttentionAttrs), call.args
    parts = score_parts(q, k, masks[0] if masks else None, attrs)
    results = call.checked_type
    if parts is None or not isinstance(results, TupleType):
        return None
    stored = tensor_type(q).dtype
    wide = stored if stored.bits > 16 else float32
    depth, width = tensor_type(q).shape[-1], tensor_type(v).shape[-1]
    dy, y, q, k, v = (_cast(x, stored, wide) for x in (dy, y, q, k, v))
    queries = _reshape(q, parts.stack, parts.together, depth)
    gradient = _reshape(dy, parts.stack, parts.together, width)
    keys = _reshape(k, parts.stack, parts.keys, depth)
    values = _reshape(v, parts.stack, parts.keys, width)
    spread = _reshape(op.nn.batch_matmul(gradient, values), *parts.shape)
    drift = op.sum(op.multiply(dy, y), axis=(-1,), keepdims=True)
    scores = op.multiply(op.multiply(parts.weights, op.subtract(spread, drift)),
                         const(attrs.scale, wide))
    if parts.visible is not None:
        scores = op.where(parts.visible, scores, const(0.0, wide))
    scores, weights = (_flat(x, parts) for x in (scores, parts.weights))
    d_query = op.nn.batch_matmul(scores, keys, transpose_b=False)
    d_key = op.nn.batch_matmul(scores, queries, transpose_a=True, transpose_b=False)
    d_value = op.nn.batch_matmul(weights, gradient, transpose_a=True, transpose_b=False)
    return Tuple(tuple(
        _cast(_reshape(x, *type_.shape), wide, type_.dtype)
        for x, type_ in zip((d_query, d_key, d_value), results.fields, strict=True)
        if isinstance(type_, TensorType)))


def _flat(x: Expr, parts: ScoreParts) -> Expr:
    return _reshape(x, parts.stack, parts.together, parts.keys)


def _reshape(x: Expr, *shape: Dim) -> Expr:
    return op.reshape(x, newshape=shape, allowzero=True)


def _cast(x: Expr, dtype: DType, wanted: DType) -> Expr:
    return x if dtype is wanted else op.cast(x, dtype=str(wanted))
