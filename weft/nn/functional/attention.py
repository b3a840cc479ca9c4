"""Attention: scaled dot products, and several heads with projections."""

from __future__ import annotations

import math

from weft.amp.autocast import narrowed
from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.dropout import dropout
from weft.support.errors import InvalidInputError


@checked
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * q kᵀ + mask) v (Vaswani et al. 2017).

    ``query`` (…, heads, L, D), ``key`` (…, heads, S, D), ``value`` (…, heads, S, E). A mask of
    booleans is true where a query sees a key; one of floats is added. With ``enable_gqa`` the heads
    of the query share those of key and value in groups. ``dropout_p`` applies to the weights,
    whatever the mode of a module: pass 0 for inference.
    """
    query, key, value = narrowed(query, key, value)
    if attn_mask is not None and attn_mask.dtype.is_floating_point:
        (attn_mask,) = narrowed(attn_mask)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if is_causal and attn_mask is not None:
        raise InvalidInputError("attention takes either attn_mask or is_causal=True")
    if dropout_p > 0:
        weights, values = _weights(query, key, value, attn_mask, is_causal, factor)
        return call("nn.matmul", dropout(weights, dropout_p), values)
    if not enable_gqa and query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        raise InvalidInputError("attention: query and key differ in heads",
                                expected=query.shape[-3], got=key.shape[-3],
                                help="enable_gqa=True shares heads")
    if attn_mask is None:
        return call("nn.attention", query, key, value, scale=factor, causal=is_causal)
    return call("nn.masked_attention", query, key, value, attn_mask, scale=factor)


def _weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """The attention weights, and the values with a head for each of the query's."""
    if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        shared = query.shape[-3] // key.shape[-3]
        key, value = (call("repeat", t, repeats=shared, axis=t.ndim - 3) for t in (key, value))
    scores = call("nn.matmul", query * scale, key, transpose_b=True)
    mask = causal_mask(query.shape[-2], key.shape[-2]) if is_causal else attn_mask
    if mask is not None and mask.dtype.name == "bool":
        scores = call("where", mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return call("nn.softmax", scores, axis=-1), value


def causal_mask(queries: int, keys: int) -> Tensor:
    """(queries, keys) of booleans: query i sees the keys up to i."""
    rows = call("arange", start=0, stop=queries, dtype="int64").reshape((-1, 1))
    return call("less_equal", call("arange", start=0, stop=keys, dtype="int64"), rows)


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """The result of attention, and the weights after dropout."""
    query, key, value = narrowed(query, key, value)
    weights, values = _weights(query, key, value, attn_mask, False,
                               1 / math.sqrt(query.shape[-1]))
    weights = dropout(weights, dropout_p)
    return call("nn.matmul", weights, values), weights
