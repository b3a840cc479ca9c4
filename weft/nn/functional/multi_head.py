"""Attention of several heads with projections, as a function of its weights."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn.functional.attention import attention_with_weights, scaled_dot_product_attention
from weft.nn.functional.conv import linear
from weft.support.errors import InvalidInputError


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
    has_batch = query.ndim == 3
    inputs = [t if has_batch else call("expand_dims", t, axis=1) for t in (query, key, value)]
    size = inputs[0].shape[2]
    if size != embed_dim_to_check or size % num_heads:
        raise InvalidInputError("attention: the query has the wrong size", got=size,
                                expected=f"{embed_dim_to_check}, a multiple of {num_heads}")
    if is_causal and attn_mask is None:
        raise InvalidInputError("attention: is_causal says what attn_mask holds",
                                help="pass attn_mask too")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(inputs, weights, in_proj_weight, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        k, v = (_with_row(t, row) for t, row in ((k, bias_k), (v, bias_v)))
    q, k, v = (_heads(t, num_heads) for t in (q, k, v))
    k, v = (own if fixed is None else fixed.reshape((q.shape[0], num_heads, *fixed.shape[1:]))
            for own, fixed in ((k, static_k), (v, static_v)))
    if add_zero_attn:
        k, v = (_with_zeros(t, 2) for t in (k, v))
    mask = _mask(q, k, key_padding_mask, attn_mask)
    joined, found = _attended(q, k, v, mask, dropout_p if training else 0.0, need_weights)
    joined = call("transpose", joined, axes=(2, 0, 1, 3)).reshape(tuple(inputs[0].shape))
    result = linear(joined, out_proj_weight, out_proj_bias)
    if found is not None and average_attn_weights:
        found = found.mean(1)
    if has_batch:
        return result, found
    return (call("squeeze", result, axis=1),
            None if found is None else call("squeeze", found, axis=0))


def _projected(
    inputs: list[Tensor], weights: tuple[Tensor | None, ...] | None, joint: Tensor | None,
    bias: Tensor | None,
) -> list[Tensor]:
    """Queries, keys and values (length, N, E)."""
    if weights is None:
        if joint is None:
            raise InvalidInputError("attention: in_proj_weight is missing")
        if inputs[0] is inputs[1] is inputs[2]:
            return list(call("split", linear(inputs[0], joint, bias), indices_or_sections=3,
                             axis=2))
        weights = call("split", joint, indices_or_sections=3, axis=0)
    if any(w is None for w in weights):
        raise InvalidInputError("attention: a projection is missing",
                                expected="q_proj_weight, k_proj_weight and v_proj_weight")
    biases: Any = (None,) * 3 if bias is None else call("split", bias, indices_or_sections=3,
                                                        axis=0)
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)
            if w is not None]


def _with_row(x: Tensor, row: Tensor) -> Tensor:
    """(length + 1, N, E): ``row`` (1, 1, E) behind every sequence."""
    wide = call("broadcast_to", row.reshape((1, 1, x.shape[2])), shape=(1, *x.shape[1:]))
    return call("concatenate", x, wide, axis=0)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(length, N, E) to (N, heads, length, head size)."""
    split = x.reshape((x.shape[0], x.shape[1], heads, x.shape[2] // heads))
    return call("transpose", split, axes=(1, 2, 0, 3))


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


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if need_weights:
        return attention_with_weights(q, k, v, mask, dropout_p)
    return scaled_dot_product_attention(q, k, v, mask, dropout_p), None
