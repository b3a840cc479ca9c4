"""Converters of attention: softmax(q k^T * scale + mask) v, and its gradient."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.aten.create import triangle_mask
from weft.frontend.torch.node import Node, broadcast_shape, dtype_in, is_symbolic, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

_BATCH_HEADS_ROWS = 3


@converts("scaled_dot_product_attention")
def scaled_dot_product_attention(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, dropout: float,
    is_causal: bool, scale: float | None = None, enable_gqa: bool = False,
) -> Expr:
    """Query (…, heads, L, E), key (…, heads, S, E), value (…, heads, S, V).

    With ``enable_gqa`` several query heads share one head of key and value. A row whose keys are
    all masked is zero.
    """
    if dropout:
        raise node.unsupported("dropout", help="export the model in eval mode: model.eval()")
    query, key, value = _same_batch(node, (query, key, value), shares_heads=enable_gqa)
    attrs: dict[str, Any] = {"scale": _scale_of(query, scale), "causal": is_causal,
                             "undefined": "zero_if_hidden"}
    if mask is None:
        return node.call(op.nn.attention, query, key, value, **attrs)
    return node.call(op.nn.masked_attention, query, key, value, _float_or_bool(node, mask),
                     **attrs)


def _scale_of(query: Expr, scale: float | None) -> float:
    return 1 / math.sqrt(max(shape_in(query)[-1], 1)) if scale is None else scale


def _same_batch(
    node: Node, operands: tuple[Expr, Expr, Expr], *, shares_heads: bool
) -> tuple[Expr, ...]:
    """Broadcast the batch axes of query, key and value; heads are left alone if they are shared."""
    own = 3 if shares_heads else 2  # trailing axes that do not broadcast
    shapes = [shape_in(x) for x in operands]
    batch = broadcast_shape(*(shape[:-own] for shape in shapes))
    return tuple(
        x if shape[:-own] == batch else node.broadcast(x, (*batch, *shape[-own:]))
        for x, shape in zip(operands, shapes, strict=True))


def _float_or_bool(node: Node, mask: Expr) -> Expr:
    """The mask as booleans or as floats to add; integers are cast to float32."""
    dtype = dtype_in(mask)
    return mask if dtype.is_bool or dtype.is_float else node.cast(mask, "float32")


@converts("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: Node, query: Expr, key: Expr, value: Expr, dropout: float, is_causal: bool,
    mask: Expr | None = None, scale: float | None = None, *_options: Any,
) -> tuple[Expr, Expr]:
    """The attention that torch traces on a CPU: the result, and logsumexp of each row of scores.

    Operands are (N, heads, rows, width); query heads may share heads of key and value. The scores
    of the second result are computed only if the graph reads it, for gradients.
    """
    shares = _shares_heads(query, key)
    result = scaled_dot_product_attention(node, query, key, value, mask, dropout, is_causal,
                                          scale, enable_gqa=shares)
    scores = _scores(node, query, key, is_causal, mask, _scale_of(query, scale))
    return result, node.cast(_log_sum(node, scores), node.dtype(1))


@converts("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    node: Node, grad: Expr, query: Expr, key: Expr, value: Expr, out: Expr, log_sum: Expr,
    dropout: float, is_causal: bool, mask: Expr | None = None, scale: float | None = None,
) -> tuple[Expr, Expr, Expr]:
    """The gradients of query, key and value (Dao et al., 2022).

    With p = exp(scores - log_sum): dv = p^T g, ds = p * (g v^T - sum(g * out)), dq = scale ds k
    and dk = scale ds^T q.
    """
    if dropout:
        raise node.unsupported("dropout")
    factor = _scale_of(query, scale)
    scores = _scores(node, query, key, is_causal, mask, factor)
    wide = dtype_in(scores)
    grad, result = node.cast(grad, wide), node.cast(out, wide)
    keys, values = (_per_query_head(node, node.cast(x, wide), query) for x in (key, value))
    weights = _weights(node, scores, node.cast(log_sum, wide))
    drift = node.call(op.sum, node.call(op.multiply, grad, result), axis=(3,), keepdims=True)
    for_weights = _product(node, grad, values, transpose_b=True)
    for_scores = node.call(op.multiply, weights, node.call(op.subtract, for_weights, drift))
    for_scores = node.call(op.multiply, for_scores, node.scalar_like(factor, for_scores))
    for_query = _product(node, for_scores, keys)
    for_key = _product(node, for_scores, node.cast(query, wide), transpose_a=True)
    for_value = _product(node, weights, grad, transpose_a=True)
    for_key, for_value = (node.cast(_summed_heads(node, g, x), dtype_in(x))
                          for g, x in ((for_key, key), (for_value, value)))
    return node.cast(for_query, dtype_in(query)), for_key, for_value


def _shares_heads(query: Expr, key: Expr) -> bool:
    return rank_of(query) >= _BATCH_HEADS_ROWS and shape_in(query)[-3] != shape_in(key)[-3]


def _scores(node: Node, query: Expr, key: Expr, is_causal: bool, mask: Expr | None,
            scale: float) -> Expr:
    """Scaled and masked scores (N, heads, L, S), in float32 for 16-bit floats."""
    dtype = dtype_in(query)
    wide = "float32" if dtype.bits < 32 else dtype
    query, key = node.cast(query, wide), _per_query_head(node, node.cast(key, wide), query)
    scores = _product(node, query, key, transpose_b=True)
    scores = node.call(op.multiply, scores, node.scalar_like(scale, scores))
    hidden = node.scalar_like(-math.inf, scores)
    if mask is not None and dtype_in(mask).is_bool:
        scores = node.call(op.where, node.broadcast(mask, shape_in(scores)), scores, hidden)
    elif mask is not None:
        scores = node.call(op.add, scores, node.cast(mask, dtype_in(scores)))
    if is_causal:
        rows, columns = shape_in(scores)[-2:]
        seen = (triangle_mask(node, rows, columns, 0, lower=True) if is_symbolic(rows, columns)
                else Constant(arrays.tri(rows, columns, dtype=bool), span=node.span))
        scores = node.call(op.where, node.broadcast(seen, shape_in(scores)), scores, hidden)
    return scores


def _log_sum(node: Node, scores: Expr) -> Expr:
    """The logarithm of sum(exp(scores)) of each row; zero if all scores are minus infinity."""
    axis = rank_of(scores) - 1
    top = node.call(op.max, scores, axis=(axis,), keepdims=True)
    hidden = node.call(op.equal, top, node.scalar_like(-math.inf, top))
    zero = node.scalar_like(0, top)
    finite = node.call(op.where, hidden, zero, top)
    powers = node.call(op.exp, node.call(op.subtract, scores, finite))
    total = node.call(op.log, node.call(op.sum, powers, axis=(axis,), keepdims=True))
    found = node.call(op.where, hidden, zero, node.call(op.add, total, finite))
    return node.reshape(found, shape_in(scores)[:-1])


def _weights(node: Node, scores: Expr, log_sum: Expr) -> Expr:
    """The softmax of the forward pass; zero at masked positions."""
    by_row = node.reshape(log_sum, (*shape_in(log_sum), 1))
    powers = node.call(op.exp, node.call(op.subtract, scores, by_row))
    seen = node.call(op.greater, scores, node.scalar_like(-math.inf, scores))
    return node.call(op.where, seen, powers, node.scalar_like(0, powers))


def _product(node: Node, a: Expr, b: Expr, *, transpose_a: bool = False,
             transpose_b: bool = False) -> Expr:
    """Batched matmul of operands (N, heads, rows, columns)."""
    batch = shape_in(a)[:2]
    stacks = [node.reshape(x, (math.prod(batch), *shape_in(x)[2:])) for x in (a, b)]
    product = node.call(op.nn.batch_matmul, *stacks, transpose_a=transpose_a,
                        transpose_b=transpose_b)
    return node.reshape(product, (*batch, *shape_in(product)[1:]))


def _per_query_head(node: Node, x: Expr, query: Expr) -> Expr:
    """Repeat each head of ``x`` for all query heads that share it."""
    (batch, heads, *rest), wanted = shape_in(x), shape_in(query)[1]
    if heads == wanted:
        return x
    group = wanted // heads
    split = node.reshape(x, (batch, heads, 1, *rest))
    return node.reshape(node.broadcast(split, (batch, heads, group, *rest)),
                        (batch, wanted, *rest))


def _summed_heads(node: Node, grad: Expr, x: Expr) -> Expr:
    """Sum ``grad`` over the query heads that share a head of ``x``."""
    (batch, heads, *rest), wanted = shape_in(grad), shape_in(x)[1]
    if heads == wanted:
        return grad
    split = node.reshape(grad, (batch, wanted, heads // wanted, *rest))
    return node.call(op.sum, split, axis=(2,), keepdims=False)
