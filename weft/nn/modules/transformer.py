"""Transformer layers: encoder, decoder and both together, as torch has them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.functional.attention import causal_mask
from weft.nn.modules.attention import MultiheadAttention
from weft.nn.modules.containers import ModuleList
from weft.nn.modules.dropout import Dropout
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module, ModuleError
from weft.nn.modules.normalization import LayerNorm

Activation = Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "gelu": F.gelu}


def _activation(given: str | Activation) -> Activation:
    if not isinstance(given, str):
        return given
    if given not in _ACTIVATIONS:
        raise ModuleError("unknown activation", expected="relu, gelu or a function",
                          got=repr(given))
    return _ACTIVATIONS[given]


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual and a layer norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Activation = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias,
                                            batch_first=batch_first, device=device, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            found, _ = self.self_attn(x, x, x, attn_mask=src_mask, need_weights=False,
                                      key_padding_mask=src_key_padding_mask, is_causal=is_causal)
            return self.dropout1(found)

        if self.norm_first:
            x = src + attend(self.norm1(src))
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(src + attend(src))
        return self.norm2(x + self._feed_forward(x))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to ``memory`` and a feed-forward network."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Activation = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias,
                                            batch_first=batch_first, device=device, dtype=dtype)
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        for number in (1, 2, 3):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            self.add_module(f"norm{number}", norm)
        for number in (1, 2, 3):
            self.add_module(f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def own(x: Tensor) -> Tensor:
            found, _ = self.self_attn(
                x, x, x, attn_mask=tgt_mask, need_weights=False, is_causal=tgt_is_causal,
                key_padding_mask=tgt_key_padding_mask)
            return self.dropout1(found)

        def across(x: Tensor) -> Tensor:
            found, _ = self.multihead_attn(
                x, memory, memory, attn_mask=memory_mask, need_weights=False,
                is_causal=memory_is_causal, key_padding_mask=memory_key_padding_mask)
            return self.dropout2(found)

        if self.norm_first:
            x = tgt + own(self.norm1(tgt))
            x = x + across(self.norm2(x))
            return x + self._feed_forward(self.norm3(x))
        x = self.norm1(tgt + own(tgt))
        x = self.norm2(x + across(x))
        return self.norm3(x + self._feed_forward(x))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, and a norm at the end if given."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def forward(
        self, src: Tensor, mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                      is_causal=is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, and a norm at the end if given."""

    def __init__(
        self, decoder_layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                      memory_key_padding_mask, tgt_is_causal, memory_is_causal)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """Encoder and decoder of "Attention is all you need" (Vaswani et al. 2017)."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Activation = "relu", custom_encoder: Module | None = None,
        custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                   batch_first, norm_first, bias)

        def last_norm() -> Module:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, device, dtype), num_encoder_layers, last_norm())
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, device, dtype), num_decoder_layers, last_norm())
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool = False,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                            memory_key_padding_mask, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """(sz, sz) of zeros, and minus infinity above the diagonal."""
        return call("where", causal_mask(sz, sz), 0.0, float("-inf"))
