"""Llama and the models with its names of weights: Mistral, Mixtral, Qwen 2 and 3, Gemma 1 to 3."""

from __future__ import annotations

from typing import Any

from weft.models.architecture import Architecture, Layer
from weft.models.transformers.source import Source

_GEMMA = ("gemma", "gemma2", "gemma3_text")


def llama_like(source: Source) -> Architecture:
    """Architecture and weights of a model with RMS norm, rotary embedding and gated MLP."""
    config = source.config
    is_gemma = config.model_type in _GEMMA
    if getattr(config, "use_bidirectional_attention", False):
        raise source.refuse("bidirectional attention")
    _take_weights(source, norm_offset=1.0 if is_gemma else 0.0)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Architecture(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size,
        heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, head_dim=head_dim,
        layers=tuple(_layer(source, i, head_dim) for i in range(config.num_hidden_layers)),
        norm="rms", epsilon=config.rms_norm_eps,
        activation=source.activation(getattr(config, "hidden_activation", None)
                                     or config.hidden_act),
        softcap=getattr(config, "attn_logit_softcapping", None) or 0.0,
        logit_softcap=getattr(config, "final_logit_softcapping", None) or 0.0,
        embedding_scale=config.hidden_size ** 0.5 if is_gemma else 1.0,
        experts=getattr(config, "num_experts_per_tok", 0))


def _layer(source: Source, number: int, head_dim: int) -> Layer:
    config: Any = source.config
    types = getattr(config, "layer_types", None)
    local = (getattr(config, "use_sliding_window", True) if types is None
             else types[number] == "sliding_attention")
    window = getattr(config, "sliding_window", None) if local else None
    rotary = source.rotary(source.model.model.rotary_emb, types and types[number])
    return Layer(scale=getattr(config, "query_pre_attn_scalar", head_dim) ** -0.5, window=window,
                 rotary=rotary)


def _take_weights(source: Source, norm_offset: float) -> None:
    source.take("model.embed_tokens", "embedding")
    source.take("model.norm", "final_norm", offset=norm_offset)
    source.take_output()
    for number in range(source.config.num_hidden_layers):
        theirs, ours = f"model.layers.{number}", f"layers.{number}"
        for name, new in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"),
                          ("o_proj", "attention_output")):
            source.take(f"{theirs}.self_attn.{name}", f"{ours}.{new}")
        for name in ("q_norm", "k_norm"):
            source.take(f"{theirs}.self_attn.{name}", f"{ours}.{name}", offset=norm_offset)
        for name in ("gate", "up", "down"):
            source.take(f"{theirs}.mlp.{name}_proj", f"{ours}.{name}")
        source.take(f"{theirs}.input_layernorm", f"{ours}.attention_norm", offset=norm_offset)
        _take_post_norms(source, theirs, ours, norm_offset)
        if f"{theirs}.mlp.experts.gate_up_proj" in source:
            _take_experts(source, theirs, ours)


def _take_post_norms(source: Source, theirs: str, ours: str, norm_offset: float) -> None:
    """Of Llama, the norm "after the attention" is that before the MLP; Gemma 2 and 3 have both."""
    names = {"post_attention_layernorm": "mlp_norm"}
    if f"{theirs}.pre_feedforward_layernorm.weight" in source:
        names = {"post_attention_layernorm": "attention_post_norm",
                 "pre_feedforward_layernorm": "mlp_norm",
                 "post_feedforward_layernorm": "mlp_post_norm"}
    for name, new in names.items():
        source.take(f"{theirs}.{name}", f"{ours}.{new}", offset=norm_offset)


def _take_experts(source: Source, theirs: str, ours: str) -> None:
    source.take(f"{theirs}.mlp.gate", f"{ours}.router")
    both = source.array(f"{theirs}.mlp.experts.gate_up_proj")
    width = both.shape[1] // 2
    for name, value in (("gate", both[:, :width]), ("up", both[:, width:]),
                        ("down", source.array(f"{theirs}.mlp.experts.down_proj"))):
        source.arrays[f"{ours}.experts_{name}.weight"] = value
