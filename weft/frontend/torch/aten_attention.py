"""Converters of attention: softmax(q k^T * scale + mask) v."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import op
from weft.frontend.torch.aten_linear import multiplied, transposed
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr


@converts("scaled_dot_product_attention")
def scaled_dot_product_attention(
    node: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, dropout: float,
    is_causal: bool, scale: float | None = None, enable_gqa: bool = False,
) -> Expr:
    """Query (…, heads, L, E), key (…, heads, S, E), value (…, heads, S, V).

    With ``enable_gqa`` several heads of the query share one of key and value: they become rows of
    one product, and nothing is repeated.
    """
    if dropout:
        raise node.unsupported("dropout", help="export the model in eval mode: model.eval()")
    own = shape_in(query)
    length, size = own[-2], shape_in(key)[-2]
    if is_causal:
        mask = Constant(np.tril(np.ones((length, size), bool)), span=node.span)
    shared = own[-3] // shape_in(key)[-3] if enable_gqa else 1
    if shared > 1:
        query = node.reshape(query, (*own[:-3], own[-3] // shared, shared * length, own[-1]))
    factor = 1 / math.sqrt(own[-1]) if scale is None else scale
    query = node.call(op.multiply, query, node.scalar_like(factor, query))
    scores = multiplied(node, query, transposed(node, key))
    by_head = (*own[:-1], size)
    if mask is None:
        weights = _softmax(node, scores)
    else:
        weights = _softmax_of_allowed(node, node.reshape(scores, by_head), mask)
        weights = node.reshape(weights, shape_in(scores))
    return node.reshape(multiplied(node, weights, value), (*own[:-1], shape_in(value)[-1]))


def _softmax(node: Node, scores: Expr) -> Expr:
    return node.call(op.nn.softmax, scores, axis=rank_of(scores) - 1)


def _softmax_of_allowed(node: Node, scores: Expr, mask: Expr) -> Expr:
    """``mask`` is a truth value, or a number to add; a row that allows nothing is all zeros."""
    if dtype_in(mask).is_bool:
        lowest = node.scalar_like(-math.inf, scores)
        scores = node.call(op.where, mask, scores, lowest)
        numbers = node.cast(mask, "uint8")
        reach = node.call(op.max, numbers, axis=(rank_of(mask) - 1,), keepdims=True)
        allowed = node.call(op.greater, reach, node.scalar_like(0, reach))
    else:
        mask = node.cast(mask, dtype_in(scores))
        scores = node.call(op.add, scores, mask)
        reach = node.call(op.max, mask, axis=(rank_of(mask) - 1,), keepdims=True)
        allowed = node.call(op.greater, reach, node.scalar_like(-math.inf, reach))
    weights = _softmax(node, scores)
    if isinstance(allowed, Constant) and allowed.data.all():
        return weights
    return node.call(op.where, allowed, weights, node.scalar_like(0, weights))


@converts("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: Node, query: Expr, key: Expr, value: Expr, dropout: float, is_causal: bool,
    mask: Expr | None = None, scale: float | None = None, *_options: Any,
) -> tuple[Expr]:
    """What torch traces on a CPU; the logarithms of the sums, for gradients, are not computed."""
    return (scaled_dot_product_attention(node, query, key, value, mask, dropout, is_causal,
                                         scale),)
