"""What model types are, as data: the names of their weights, and the options of their blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from weft.support.dataclass import dataclass

# Rows of q, k and v: each together, or those of a head of k with the queries that share it.
FusedRows = Literal["together", "by_head"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """How configuration and weights of model types describe a decoder.

    ``model`` and ``layer`` map names of modules to the names of ``weft.models.architecture``; those
    of a layer follow ``layers`` and its number. ``qkv`` and ``gate_up`` hold several matrices.
    ``defaults`` are fields that a configuration may lack, ``needs`` the values that fields must
    have. ``parallel`` names the fields that make blocks parallel, ``True`` if they always are.
    """

    model: Mapping[str, str]
    layers: str
    layer: Mapping[str, str]
    output: str = "lm_head"
    qkv: str = ""
    qkv_rows: FusedRows = "together"
    gate_up: str = ""
    transposed: bool = False
    norm: Literal["layer", "rms"]
    norm_offset: float = 0.0
    unit_norms: bool = False
    activations: tuple[str, ...] = ("hidden_act",)
    positions: Literal["rotary", "alibi", "learned"] = "rotary"
    parallel: bool | tuple[str, ...] = False
    scaled_embedding: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def but(self, **fields: Any) -> Family:
        """A family with other fields; mappings add to those of this one."""
        for name, value in fields.items():
            if isinstance(value, Mapping):
                fields[name] = {**getattr(self, name), **value}
        return dataclasses.replace(self, **fields)


_ATTENTION = {f"self_attn.{name}": ours for name, ours in (
    ("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "attention_output"),
    ("q_norm", "q_norm"), ("k_norm", "k_norm"))}
_LLAMA = Family(
    model={"model.embed_tokens": "embedding", "model.norm": "final_norm"}, layers="model.layers",
    layer={**_ATTENTION, "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
           "input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"},
    norm="rms",
    defaults={"rms_norm_eps": 1e-6, "hidden_act": "silu"},
    needs={"use_bidirectional_attention": (None, False)})
_GEMMA = _LLAMA.but(
    norm_offset=1.0, scaled_embedding=True, activations=("hidden_activation",),
    defaults={"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256,
              "tie_word_embeddings": True})
_GEMMA2 = _GEMMA.but(
    layer={"post_attention_layernorm": "attention_post_norm",
           "pre_feedforward_layernorm": "mlp_norm", "post_feedforward_layernorm": "mlp_post_norm"},
    defaults={"query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 2,
              "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})
_STACKED = {"self_attention.dense": "attention_output", "input_layernorm": "attention_norm",
            "post_attention_layernorm": "mlp_norm", "mlp.dense_h_to_4h": "up",
            "mlp.dense_4h_to_h": "down"}
_BLOOM = Family(
    model={"transformer.word_embeddings": "embedding",
           "transformer.word_embeddings_layernorm": "embedding_norm",
           "transformer.ln_f": "final_norm"},
    layers="transformer.h", layer=_STACKED, qkv="self_attention.query_key_value",
    qkv_rows="by_head", norm="layer", positions="alibi",
    defaults={"layer_norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh",
              "tie_word_embeddings": True},
    needs={"apply_residual_connection_post_layernorm": (None, False)})

FAMILIES: dict[str, Family] = {
    "bloom": _BLOOM,
    "falcon": _BLOOM.but(
        layer={"ln_attn": "attention_norm", "ln_mlp": "mlp_norm"}, positions="rotary",
        activations=("activation",), parallel=("new_decoder_architecture", "parallel_attn"),
        defaults={"activation": "gelu", "multi_query": True, "parallel_attn": True},
        needs={"alibi": (None, False)}),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2.but(defaults={
        "sliding_window_pattern": 6, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "rope_theta": 1e6, "rope_local_base_freq": 1e4}),
    "gpt2": Family(
        model={"transformer.wte": "embedding", "transformer.wpe": "position_embedding",
               "transformer.ln_f": "final_norm"},
        layers="transformer.h", qkv="attn.c_attn", transposed=True,
        layer={"attn.c_proj": "attention_output", "ln_1": "attention_norm", "ln_2": "mlp_norm",
               "mlp.c_fc": "up", "mlp.c_proj": "down"},
        norm="layer", positions="learned", activations=("activation_function",),
        defaults={"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
                  "n_positions": 1024, "tie_word_embeddings": True},
        needs={"scale_attn_weights": (None, True), "add_cross_attention": (None, False)}),
    "gpt_neox": Family(
        model={"gpt_neox.embed_in": "embedding", "gpt_neox.final_layer_norm": "final_norm"},
        layers="gpt_neox.layers", output="embed_out", qkv="attention.query_key_value",
        qkv_rows="by_head", layer={**_STACKED, "attention.dense": "attention_output"},
        norm="layer", parallel=("use_parallel_residual",),
        defaults={"layer_norm_eps": 1e-5, "hidden_act": "gelu", "rotary_pct": 0.25,
                  "use_parallel_residual": True}),
    "llama": _LLAMA,
    "mistral": _LLAMA.but(defaults={"sliding_window": 4096}),
    "mixtral": _LLAMA.but(defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6,
                                    "num_experts_per_tok": 2}),
    "olmo": _LLAMA.but(norm="layer", unit_norms=True, defaults={"layer_norm_eps": 1e-5},
                       needs={"clip_qkv": (None,)}),
    "olmo2": _LLAMA.but(
        layer={"post_attention_layernorm": "attention_post_norm",
               "post_feedforward_layernorm": "mlp_post_norm"},
        defaults={"rms_norm_eps": 1e-5}),
    "phi": _LLAMA.but(
        model={"model.final_layernorm": "final_norm"},
        layer={"self_attn.dense": "attention_output", "self_attn.q_layernorm": "q_norm",
               "self_attn.k_layernorm": "k_norm", "mlp.fc1": "up", "mlp.fc2": "down"},
        norm="layer", parallel=True,
        defaults={"layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "partial_rotary_factor": 0.5}),
    "phi3": _LLAMA.but(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj",
                       defaults={"rms_norm_eps": 1e-5}),
    "qwen2": _LLAMA.but(defaults={"use_sliding_window": False}),
    "qwen3": _LLAMA.but(defaults={"use_sliding_window": False, "head_dim": 128}),
    "qwen3_moe": _LLAMA.but(
        defaults={"use_sliding_window": False, "head_dim": 128, "num_experts_per_tok": 8},
        needs={"norm_topk_prob": (True,), "mlp_only_layers": (None, []),
               "decoder_sparse_step": (None, 1)}),
    "smollm3": _LLAMA.but(defaults={"rope_theta": 2e6, "no_rope_layer_interval": 4,
                                    "use_sliding_window": False, "tie_word_embeddings": True}),
    "stablelm": _LLAMA.but(
        norm="layer", parallel=("use_parallel_residual",),
        defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
        needs={"qk_layernorm": (None, False)}),
}
