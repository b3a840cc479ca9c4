"""MultiheadAttention with torch's weights, masks and results."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.functional.attention import attention_with_weights, causal_mask
from weft.nn.modules.linear import Linear, new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads with projections of inputs and result (Vaswani 2017).

    Inputs (L, N, E), with ``batch_first`` (N, L, E), or (L, E) without a batch.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ModuleError("embed_dim does not divide into heads", got=embed_dim,
                              expected=f"a multiple of {num_heads}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn = add_zero_attn
        self._add_projections(embed_dim, bias, device, dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            made = new_parameter((1, 1, embed_dim), dtype, device) if add_bias_kv else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def _add_projections(self, size: int, bias: bool, device: Any, dtype: Any) -> None:
        is_joint = self.kdim == size and self.vdim == size
        widths = {"q_proj_weight": size, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        for name, width in widths.items():
            self.register_parameter(
                name, None if is_joint else new_parameter((size, width), dtype, device))
        self.register_parameter(
            "in_proj_weight", new_parameter((3 * size, size), dtype, device) if is_joint else None)
        self.register_parameter(
            "in_proj_bias", new_parameter((3 * size,), dtype, device) if bias else None)

    def reset_parameters(self) -> None:
        """Xavier's uniform numbers for the projections of inputs, zeros for biases."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight,
                       self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights (N, L, S) if wanted (per head if not averaged).

        ``key_padding_mask`` (N, S) and ``attn_mask`` (L, S) or (N * heads, L, S): booleans are true
        where a key is hidden, floats are added. ``is_causal`` alone hides later keys.
        """
        is_self = query is key and key is value
        has_batch = query.ndim == 3
        inputs = [self._batch_first(t, has_batch) for t in (query, key, value)]
        query, key, value = self._project(inputs, is_self)
        seen = key.shape[1]
        key = self._with_constants(key, self.bias_k)
        value = self._with_constants(value, self.bias_v)
        q, k, v = (self._heads(t) for t in (query, key, value))
        mask = self._mask(q, seen, key_padding_mask, attn_mask, is_causal)
        if mask is not None and k.shape[2] > seen:  # the added keys are never hidden
            mask = call("nn.pad", mask, 0.0,
                        pad_width=(*[(0, 0)] * (mask.ndim - 1), (0, k.shape[2] - seen)))
        rate = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            result, weights = attention_with_weights(q, k, v, mask, rate)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if has_batch else call("squeeze", weights, axis=0)
        else:
            is_plain = is_causal and key_padding_mask is None and k.shape[2] == seen
            result = F.scaled_dot_product_attention(
                q, k, v, None if is_plain else mask, rate, is_plain)
        joined = call("transpose", result, axes=(0, 2, 1, 3))
        joined = self.out_proj(joined.reshape((q.shape[0], q.shape[2], self.embed_dim)))
        return self._as_given(joined, has_batch), weights

    def _batch_first(self, x: Tensor, has_batch: bool) -> Tensor:
        if not has_batch:
            return call("expand_dims", x, axis=0)
        return x if self.batch_first else call("transpose", x, axes=(1, 0, 2))

    def _as_given(self, x: Tensor, has_batch: bool) -> Tensor:
        if not has_batch:
            return call("squeeze", x, axis=0)
        return x if self.batch_first else call("transpose", x, axes=(1, 0, 2))

    def _project(self, inputs: list[Tensor], is_self: bool) -> list[Tensor]:
        """Queries, keys and values, (N, length, E) each."""
        if is_self and self.in_proj_weight is not None:
            joint = F.linear(inputs[0], self.in_proj_weight, self.in_proj_bias)
            return list(call("split", joint, indices_or_sections=3, axis=-1))
        if self.in_proj_weight is not None:
            weights = call("split", self.in_proj_weight, indices_or_sections=3, axis=0)
        else:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            weights = tuple(self.get_parameter(name) for name in names)
        biases: Any = (None,) * 3
        if self.in_proj_bias is not None:
            biases = call("split", self.in_proj_bias, indices_or_sections=3, axis=0)
        return [F.linear(*each) for each in zip(inputs, weights, biases, strict=True)]

    def _with_constants(self, x: Tensor, bias: Parameter | None) -> Tensor:
        """Keys or values (N, S, E) with the learned one and zeros behind them, if the layer has
        these options.
        """
        parts = [x]
        if bias is not None:
            parts.append(call("broadcast_to", bias, shape=(x.shape[0], 1, x.shape[2])))
        if self.add_zero_attn:
            parts.append(creation.zeros((x.shape[0], 1, x.shape[2]), dtype=x.dtype))
        return x if len(parts) == 1 else call("concatenate", *parts, axis=1)

    def _heads(self, x: Tensor) -> Tensor:
        """(N, length, E) to (N, heads, length, head size)."""
        split = x.reshape((x.shape[0], x.shape[1], self.num_heads, self.head_dim))
        return call("transpose", split, axes=(0, 2, 1, 3))

    def _mask(
        self, q: Tensor, keys: int, padding: Tensor | None, mask: Tensor | None, is_causal: bool
    ) -> Tensor | None:
        """What is added to the scores, (N or 1, heads or 1, L or 1, keys)."""
        if is_causal and mask is None:
            mask = call("logical_not", causal_mask(q.shape[2], keys))
        if mask is not None:
            mask = _additive(mask, q)
            if mask.ndim == 3:
                mask = mask.reshape((q.shape[0], self.num_heads, *mask.shape[1:]))
            else:
                mask = mask.reshape((1, 1, *mask.shape))
        if padding is not None:
            padding = _additive(padding, q).reshape((-1, 1, 1, keys))
        if mask is None or padding is None:
            return mask if padding is None else padding
        return mask + padding


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of booleans is true; other masks as they are."""
    if mask.dtype.name != "bool":
        return mask
    zeros = creation.zeros(tuple(mask.shape), dtype=like.dtype)
    return call("where", mask, call("full_like", zeros, -math.inf), zeros)
