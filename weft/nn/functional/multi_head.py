"""Attention of several heads with projections, as a function of its weights."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.attention import (
    attention_with_weights,
    causal_mask,
    scaled_dot_product_attention,
)
from weft.nn.functional.conv import linear
from weft.support.errors import InvalidInputError


@checked
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The result (L, N, E), and the weights (N, L, S) if wanted, per head if not averaged.

    Inputs are (L, N, E), or (L, E) without a batch. ``key_padding_mask`` (N, S) and ``attn_mask``
    (L, S) or (N · heads, L, S): booleans are true where a key is hidden, floats are added.
    ``bias_k`` and ``bias_v`` (1, 1, E) are a further key and value, zeros with ``add_zero_attn``;
    ``static_k`` and ``static_v`` (N · heads, S, E / heads) replace the projected ones.
    """
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise InvalidInputError("attention: the query has the wrong size", got=query.shape[-1],
                                expected=f"{embed_dim_to_check}, a multiple of {num_heads}")
    if is_causal and attn_mask is None:
        raise InvalidInputError("attention: is_causal says what attn_mask holds",
                                help="pass attn_mask too")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    return attention_of_heads(
        query, key, value, num_heads, weights, in_proj_weight, in_proj_bias, out_proj_weight,
        out_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p if training else 0.0,
        key_padding_mask, attn_mask, need_weights, average_attn_weights,
        static=(static_k, static_v))


def attention_of_heads(
    query: Tensor, key: Tensor, value: Tensor, num_heads: int,
    separate: tuple[Tensor | None, ...] | None, joint: Tensor | None, in_proj_bias: Tensor | None,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, key_padding_mask: Tensor | None,
    attn_mask: Tensor | None, need_weights: bool, average_attn_weights: bool, *,
    static: tuple[Tensor | None, Tensor | None] = (None, None), is_causal: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``multi_head_attention_forward`` with projections ``separate`` or ``joint``.

    ``is_causal`` without ``attn_mask`` hides later keys; with ``batch_first`` inputs and result are
    (N, L, E).
    """
    has_batch = query.ndim == 3
    is_self = query is key and key is value
    inputs = [_batch_first(t, has_batch, batch_first) for t in (query, key, value)]
    q, k, v = _projected(inputs, is_self, separate, joint, in_proj_bias)
    batch, length, size = q.shape
    seen = k.shape[1]
    if bias_k is not None and bias_v is not None:
        k, v = (_with_row(t, row) for t, row in ((k, bias_k), (v, bias_v)))
    q, k, v = (_heads(t, num_heads) for t in (q, k, v))
    k, v = (own if fixed is None else fixed.reshape((batch, num_heads, *fixed.shape[1:]))
            for own, fixed in zip((k, v), static, strict=True))
    if add_zero_attn:
        k, v = (_with_zeros(t, 2) for t in (k, v))
    is_causal = is_causal and attn_mask is None
    is_plain = is_causal and not need_weights and key_padding_mask is None and k.shape[2] == seen
    if is_causal and not is_plain:
        attn_mask = call("logical_not", causal_mask(length, seen))
    mask = _mask(q, k, key_padding_mask, attn_mask)
    found: Tensor | None = None
    if need_weights:
        result, found = attention_with_weights(q, k, v, mask, dropout_p)
        found = found.mean(1) if average_attn_weights else found
        found = found if has_batch else call("squeeze", found, axis=0)
    else:
        result = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_plain)
    joined = call("transpose", result, axes=(0, 2, 1, 3)).reshape((batch, length, size))
    joined = linear(joined, out_proj_weight, out_proj_bias)
    if not has_batch:
        return call("squeeze", joined, axis=0), found
    return (joined if batch_first else call("transpose", joined, axes=(1, 0, 2))), found


def _batch_first(x: Tensor, has_batch: bool, is_first: bool) -> Tensor:
    if not has_batch:
        return call("expand_dims", x, axis=0)
    return x if is_first else call("transpose", x, axes=(1, 0, 2))


def _projected(
    inputs: list[Tensor], is_self: bool, weights: tuple[Tensor | None, ...] | None,
    joint: Tensor | None, bias: Tensor | None,
) -> list[Tensor]:
    """Queries, keys and values (N, length, E)."""
    if weights is None:
        if joint is None:
            raise InvalidInputError("attention: in_proj_weight is missing")
        if is_self:
            return list(call("split", linear(inputs[0], joint, bias), indices_or_sections=3,
                             axis=-1))
        weights = call("split", joint, indices_or_sections=3, axis=0)
    if any(w is None for w in weights):
        raise InvalidInputError("attention: a projection is missing",
                                expected="q_proj_weight, k_proj_weight and v_proj_weight")
    biases: Any = (None,) * 3 if bias is None else call("split", bias, indices_or_sections=3,
                                                        axis=0)
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)
            if w is not None]


def _with_row(x: Tensor, row: Tensor) -> Tensor:
    """(N, length + 1, E): ``row`` (1, 1, E) behind every sequence."""
    wide = call("broadcast_to", row, shape=(x.shape[0], 1, x.shape[2]))
    return call("concatenate", x, wide, axis=1)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(N, length, E) to (N, heads, length, head size)."""
    split = x.reshape((x.shape[0], x.shape[1], heads, x.shape[2] // heads))
    return call("transpose", split, axes=(0, 2, 1, 3))


def _with_zeros(x: Tensor, axis: int) -> Tensor:
    number = call("full", 0, shape=(), dtype=x.dtype.name)
    pads = tuple((0, 1) if at == axis else (0, 0) for at in range(x.ndim))
    return call("nn.pad", x, number, pad_width=pads)


def _mask(q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """What is added to the scores, (N or 1, heads or 1, L or 1, S)."""
    batch, heads, length, _ = q.shape
    keys = k.shape[2]
    found: list[Tensor] = []
    if mask is not None:
        shape = (batch, heads, length, -1) if mask.ndim == 3 else (1, 1, length, -1)
        found.append(_grown(_additive(mask, q).reshape(shape), keys))
    if padding is not None:
        found.append(_grown(_additive(padding, q).reshape((batch, 1, 1, -1)), keys))
    return None if not found else found[0] if len(found) == 1 else found[0] + found[1]


def _grown(mask: Tensor, keys: int) -> Tensor:
    """``mask`` with zeros for the keys that biases and zeros added."""
    if not keys - 2 <= mask.shape[3] <= keys:
        raise InvalidInputError("attention: a mask does not fit the keys", got=mask.shape[3],
                                expected=keys)
    while mask.shape[3] < keys:
        mask = _with_zeros(mask, 3)
    return mask


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of booleans is true; other masks as they are."""
    if mask.dtype.name != "bool":
        return mask
    zeros = call("zeros", shape=tuple(mask.shape), dtype=like.dtype.name)
    return call("where", mask, -math.inf, zeros)
