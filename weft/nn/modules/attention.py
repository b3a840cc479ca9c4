"""MultiheadAttention with torch's weights, masks and results."""

from __future__ import annotations

from typing import Any

from weft.eager.tensor import Tensor
from weft.nn import init
from weft.nn.functional.multi_head import attention_of_heads
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
        weights = None
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return attention_of_heads(
            query, key, value, self.num_heads, weights, self.in_proj_weight, self.in_proj_bias,
            self.out_proj.weight, self.out_proj.bias, self.bias_k, self.bias_v, self.add_zero_attn,
            self.dropout if self.training else 0.0, key_padding_mask, attn_mask, need_weights,
            average_attn_weights, is_causal=is_causal, batch_first=self.batch_first)
