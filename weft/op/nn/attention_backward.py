"""The gradient of attention as one operator, which never stores the scores as a whole."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Dim, OpPattern, RelationContext, define_op, float32, get_op, infer_expr, op_case
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem, const
from weft.ir.types import TensorType, TupleType
from weft.op.gradients import attrs_of, sum_to, tensor_type
from weft.op.nn.attention import (
    AttentionAttrs,
    ScoreParts,
    check_operands,
    reference_weights,
    repeated_heads,
    score_parts,
)
from weft.support.errors import PassError
from weft.topi.nn import attention as topi


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(5)
    if types is None:
        return False
    dy, y, q, k, v = types
    for arg, type_ in enumerate(types):
        ctx.expect_float(arg, type_)
        ctx.expect_same_dtype(arg, type_, q.dtype)
    check_operands(ctx, (q, k, v), first=2)
    for arg, type_ in ((0, dy), (1, y)):
        wanted = (*q.shape[:-1], v.shape[-1])
        if type_.shape != wanted:
            ctx.fail("not the shape of the result of attention", arg=arg,
                     expected=TensorType(wanted, q.dtype), got=type_)
    ctx.output(TupleType((q, k, v)))
    return True


@define_op("nn.attention_backward", attrs=AttentionAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, results=3)
def attention_backward(
    dy: te.Tensor, y: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor, attrs: AttentionAttrs,
) -> tuple[te.Tensor, ...]:
    """The gradients of the operands of ``nn.attention``, from its result and the gradient of it.

    ``dy`` and ``y``: (…, heads, L, E); the others and the results are those of ``nn.attention``.
    The scores are computed again (Dao, "FlashAttention-2", 2023).
    """
    return _compute(dy, y, q, k, v, None, attrs)


@define_op("nn.masked_attention_backward", attrs=AttentionAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, results=3)
def masked_attention_backward(
    dy: te.Tensor, y: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor,
    attrs: AttentionAttrs,
) -> tuple[te.Tensor, ...]:
    """``nn.attention_backward`` of ``nn.masked_attention``; the mask gets no gradient here."""
    return _compute(dy, y, q, k, v, mask, attrs)


def _compute(
    dy: te.Tensor, y: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None,
    attrs: AttentionAttrs,
) -> tuple[te.Tensor, ...]:
    return topi.attention_backward(
        dy, y, q, k, v, mask, scale=attrs.scale, offset=attrs.last_key, fill=attrs.unseen,
        undefined=attrs.undefined)


def attention_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """One kernel for queries, keys and values; the scores are stored only for that of a mask."""
    attrs, dtype = attrs_of(call, AttentionAttrs), tensor_type(call).dtype
    wide = dtype if dtype.bits > 16 else float32
    operands = [_cast(x, wide) for x in (dy, y, *call.args[:3])]
    name = "nn.masked_attention_backward" if len(call.args) > 3 else "nn.attention_backward"
    found = infer_expr(get_op(name)(*operands, *call.args[3:], **dict(attrs.items())), trust=True)
    grads = [get_op("cast")(TupleGetItem(found, i), dtype=dtype) if wide != dtype
             else TupleGetItem(found, i) for i in range(3)]
    return [*grads, *(_mask_gradient(call, y, dy, mask) for mask in call.args[3:])]


def _cast(x: Expr, dtype: object) -> Expr:
    return x if tensor_type(x).dtype == dtype else get_op("cast")(x, dtype=dtype)


def _mask_gradient(call: Call, y: Expr, dy: Expr, mask: Expr) -> Expr:
    """That of the scores, summed over the axes along which the mask was broadcast."""
    type_ = tensor_type(mask)
    parts = _parts(call, call.args)
    if type_.dtype.is_bool:
        return get_op("zeros_like")(mask)
    if parts is None:
        raise PassError("the gradient of a mask needs sizes that the inputs determine",
                        where=call.span, got=call.checked_type, help="compile for known sizes")
    scores, _ = _score_gradient(dy, y, call.args[2], parts)
    shaped = infer_expr(_reshape(scores, *parts.shape), trust=True)
    summed = sum_to(shaped, tensor_type(shaped), type_)
    return get_op("cast")(summed, dtype=type_.dtype)


def _parts(call: Call, operands: Sequence[Expr]) -> ScoreParts | None:
    """The weights of ``q, k, v[, mask]``, typed."""
    q, k, _, *masks = operands
    parts = score_parts(q, k, masks[0] if masks else None, attrs_of(call, AttentionAttrs))
    if parts is None:
        return None
    typed = infer_expr(parts.weights, trust=True)
    return dataclasses.replace(parts, weights=typed)


@attention_backward.expansion
@masked_attention_backward.expansion
def _expansion(call: Call) -> Expr | None:
    """Batched matmuls around the gradient of a softmax, for gradients of the gradient."""
    dy, y, q, k, v, *_ = call.args
    parts = _parts(call, call.args[2:])
    if parts is None:
        return None
    product, types = get_op("nn.batch_matmul"), [tensor_type(x) for x in (q, k, v)]
    scores, weights = _score_gradient(dy, y, v, parts)
    wide = tensor_type(scores).dtype  # as in the forward pass, wider than 16-bit operands
    scaled = get_op("multiply")(scores, const(attrs_of(call, AttentionAttrs).scale, wide))

    def flat(x: Expr, rows: Dim) -> Expr:
        return _reshape(_cast(x, wide), parts.stack, rows, tensor_type(x).shape[-1])

    d_query = product(scaled, flat(k, parts.keys), transpose_b=False)
    d_key = product(scaled, flat(q, parts.together), transpose_a=True, transpose_b=False)
    d_value = product(weights, flat(dy, parts.together), transpose_a=True, transpose_b=False)
    return Tuple(tuple(_cast(infer_expr(_reshape(x, *t.shape), trust=True), t.dtype)
                       for x, t in zip((d_query, d_key, d_value), types, strict=True)),
                 span=call.span)


def _score_gradient(
    dy: Expr, y: Expr, v: Expr, parts: ScoreParts
) -> tuple[Expr, Expr]:
    """The gradient of the scores, and the weights, (stack, together, keys), typed."""
    dtype, width = tensor_type(parts.weights).dtype, tensor_type(v).shape[-1]
    shape = (parts.stack, parts.together, parts.keys)
    weights, multiply = _reshape(parts.weights, *shape), get_op("multiply")
    spread = get_op("nn.batch_matmul")(
        _reshape(_cast(dy, dtype), parts.stack, parts.together, width),
        _reshape(_cast(v, dtype), parts.stack, parts.keys, width))
    # The sum of weights times their gradients, which the result gives without the scores.
    drift = get_op("sum")(multiply(_cast(dy, dtype), _cast(y, dtype)), axis=(-1,), keepdims=True)
    drift = _reshape(drift, parts.stack, parts.together, 1)
    found = multiply(weights, get_op("subtract")(spread, drift))
    if parts.visible is not None:  # a hidden score is a constant
        found = _reshape(get_op("where")(
            parts.visible, _reshape(found, *parts.shape), const(0.0, dtype)), *shape)
    return infer_expr(found, trust=True), infer_expr(weights, trust=True)


def _reshape(x: Expr, *shape: Dim) -> Expr:
    return get_op("reshape")(x, newshape=shape, allowzero=True)


def _reference(
    dy: np.ndarray, y: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray,
    mask: np.ndarray | None = None, **values: Any,
) -> tuple[np.ndarray, ...]:
    weights, visible = reference_weights(q, k, mask, **values)
    wide = dy.astype(np.float64)
    keys, vals = (repeated_heads(x.astype(np.float64), q) for x in (k, v))
    spread = wide @ vals.swapaxes(-1, -2)
    found = weights * (spread - (wide * y).sum(-1, keepdims=True))
    found = np.where(visible, found, 0) * values.get("scale", 1.0)
    d_key, d_value = (x.swapaxes(-1, -2) @ y for x, y in ((found, q), (weights, wide)))
    if keys.shape != k.shape:  # the sum over the heads that share keys
        group = q.shape[-3] // k.shape[-3]
        d_key, d_value = (x.reshape(*k.shape[:-2], group, *x.shape[-2:]).sum(-3)
                          for x in (d_key, d_value))
    return tuple(np.asarray(x).astype(q.dtype) for x in (found @ keys, d_key, d_value))


def _operands(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> tuple[Any, ...]:
    """The shapes of dy, y, q, k and v."""
    result = (*q[:-1], v[-1])
    return result, result, q, k, v


attention_backward.spec(
    _reference,
    op_case(*_operands((2, 5, 4), (2, 7, 4), (2, 7, 3)), scale=0.5),
    op_case(*_operands((5, 4), (7, 4), (7, 3))),
    op_case(*_operands((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)), scale=0.35),
    op_case(*_operands((2, 6, 4), (2, 6, 4), (2, 6, 4)), causal=True),
    op_case(*_operands((2, 3, 4), (2, 6, 4), (2, 6, 5)), causal=True, offset=3),
    op_case(*_operands((2, 3, 4), (2, 6, 4), (2, 6, 5)), causal=True, offset=-1,
            undefined="zero_if_hidden"),
    op_case(*_operands((1, 70, 8), (1, 130, 8), (1, 130, 9)), causal=True, offset=60),
    op_case(*_operands((2, 5, 8), (2, 7, 8), (2, 7, 8)), dtypes="float64"),
)
_SEEN = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 1, 1], [0, 1, 1, 1, 1]], bool)
_SOME = np.array([[True, True, False, False, False], [False] * 5, [True] * 5])
_ADDED = np.where(_SEEN, np.linspace(-1, 1, 15).reshape(3, 5), -np.inf).astype(np.float32)
_SMALL = _operands((2, 3, 4), (2, 5, 4), (2, 5, 3))
masked_attention_backward.spec(
    _reference,
    op_case(*_SMALL, _SEEN, scale=0.5),
    op_case(*_SMALL, _ADDED),
    op_case(*_SMALL, _SOME, undefined="zero"),
    op_case(*_SMALL, _SOME, fill=-1e4),
    op_case(*_operands((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 3)),
            np.arange(20).reshape(4, 1, 5) % 3 > 0),
    op_case(*_SMALL, (5,), causal=True, offset=2),
)


def attention_tangent(call: Call, y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    """The tangents of the scores pass through the derivative of a softmax."""
    del y
    parts = _parts(call, call.args)
    if parts is None:
        raise PassError("the tangent of attention needs known sizes", where=call.span,
                        got=call.checked_type, help="compile for known sizes")
    v, tangent_of_v = call.args[2], tangents[2]
    dtype, multiply = tensor_type(parts.weights).dtype, get_op("multiply")
    weights = _reshape(parts.weights, parts.stack, parts.together, parts.keys)
    scores = _score_tangent(call, tangents, parts)
    terms = []
    if scores is not None:
        mean = get_op("sum")(multiply(weights, scores), axis=(-1,), keepdims=True)
        moved = multiply(weights, get_op("subtract")(scores, mean))
        terms.append(_weighted(moved, v, parts))
    if tangent_of_v is not None:
        terms.append(_weighted(weights, tangent_of_v, parts))
    if not terms:
        return None
    total = functools.reduce(get_op("add"), terms)
    result = tensor_type(call)
    shaped = _reshape(total, *result.shape)
    return shaped if dtype == result.dtype else get_op("cast")(shaped, dtype=result.dtype)


def _weighted(weights: Expr, v: Expr, parts: ScoreParts) -> Expr:
    dtype, width = tensor_type(parts.weights).dtype, tensor_type(v).shape[-1]
    values = _reshape(_cast(v, dtype), parts.stack, parts.keys, width)
    return get_op("nn.batch_matmul")(weights, values, transpose_b=False)


def _score_tangent(
    call: Call, tangents: Sequence[Expr | None], parts: ScoreParts
) -> Expr | None:
    """The tangent of the scores, (stack, together, keys); 0 where a key is hidden."""
    (q, k, _, *_), (dq, dk, _, *rest) = call.args, tangents
    dtype, depth = tensor_type(parts.weights).dtype, tensor_type(q).shape[-1]
    scale = const(attrs_of(call, AttentionAttrs).scale, dtype)

    def product(left: Expr, right: Expr) -> Expr:
        rows = _reshape(_cast(left, dtype), parts.stack, parts.together, depth)
        columns = _reshape(_cast(right, dtype), parts.stack, parts.keys, depth)
        return get_op("multiply")(get_op("nn.batch_matmul")(rows, columns), scale)

    terms = [product(a, b) for a, b in ((dq, k), (q, dk)) if a is not None and b is not None]
    shape = (parts.stack, parts.together, parts.keys)
    if rest and rest[0] is not None and tensor_type(rest[0]).dtype.is_float:
        spread = get_op("broadcast_to")(_cast(rest[0], dtype), shape=parts.shape)
        terms.append(_reshape(spread, *shape))
    if not terms:
        return None
    total = functools.reduce(get_op("add"), terms)
    if parts.visible is None:
        return total
    seen = get_op("where")(parts.visible, _reshape(total, *parts.shape), const(0.0, dtype))
    return _reshape(seen, *shape)
