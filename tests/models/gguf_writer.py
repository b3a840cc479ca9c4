"""Writes transformers models as GGUF files, with the names and the order of rows of llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.generation.text.gguf_files import metadata, write_contents
from weft.models import Architecture, Weights, architecture_of
from weft.models.gguf.translate import FAMILIES

VOCABULARY = 260  # that of the tokenizer of ``metadata``
_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
          "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_MODULES = {"embedding": "token_embd", "position_embedding": "position_embd",
            "embedding_norm": "token_embd_norm", "final_norm": "output_norm", "output": "output"}
_LAYER = {"attention_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v",
          "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "attention_output": "attn_output",
          "attention_post_norm": "post_attention_norm", "mlp_norm": "ffn_norm",
          "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
          "mlp_post_norm": "post_ffw_norm", "router": "ffn_gate_inp",
          "experts_gate": "ffn_gate_exps", "experts_up": "ffn_up_exps",
          "experts_down": "ffn_down_exps"}
# Architecture of GGUF -> class of the model, of the configuration, and sizes.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bloom": ("BloomForCausalLM", "BloomConfig",
              {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "falcon": ("FalconForCausalLM", "FalconConfig",
               {**_SIZES, "multi_query": True, "bias": False, "parallel_attn": True,
                "new_decoder_architecture": False, "alibi": False}),
    "falcon-40b": ("FalconForCausalLM", "FalconConfig",
                   {**_SIZES, "num_kv_heads": 2, "bias": False, "new_decoder_architecture": True,
                    "alibi": False}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig",
              {**_GROUPED, "num_key_value_heads": 1, "head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"]}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig",
               {**_GROUPED, "num_hidden_layers": 6, "head_dim": 16, "query_pre_attn_scalar": 16,
                "sliding_window": 8}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config",
             {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4,
              "n_positions": 128}),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SIZES),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_GROUPED, "num_local_experts": 4}),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", {**_GROUPED, "clip_qkv": None}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _GROUPED),
    "phi2": ("PhiForCausalLM", "PhiConfig", _SIZES),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 16}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                 {**_GROUPED, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 32, "norm_topk_prob": True}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", _GROUPED),
}
KINDS = {"falcon-40b": "falcon", "mixtral": "llama"}  # others are architectures by themselves
_FUSED = ("bloom", "falcon", "gpt2", "gptneox")


def write_model(path: Path, name: str, model: Any) -> Path:
    """The file of a model of ``MODELS``."""
    kind, config = KINDS.get(name, name), model.config
    architecture, weights = architecture_of(model)
    return write_contents(path, _metadata(kind, config, architecture, weights),
                          _tensors(kind, architecture, weights))


def _metadata(kind: str, config: Any, a: Architecture, weights: Weights) -> dict[str, Any]:
    first = a.layers[0].rotary
    fields: dict[str, Any] = {
        "context_length": 128, "embedding_length": a.hidden_size, "block_count": len(a.layers),
        "feed_forward_length": weights.shape_of(
            f"layers.0.{'experts_up' if a.experts else 'up'}.weight")[-2],
        "attention.head_count": a.heads, "attention.head_count_kv": a.kv_heads,
        "attention.layer_norm_epsilon" if a.norm == "layer" else
        "attention.layer_norm_rms_epsilon": a.epsilon,
        "attention.key_length": a.head_dim, "attention.value_length": a.head_dim}
    if first is not None:
        fields |= {"rope.dimension_count": 2 * len(first.frequencies),
                   "rope.freq_base": _base(a)}
    windows = [layer.window for layer in a.layers if layer.window]
    fields |= {"attention.sliding_window": windows[0]} if windows else {}
    fields |= {"attn_logit_softcapping": a.softcap} if a.softcap else {}
    fields |= {"final_logit_softcapping": a.logit_softcap} if a.logit_softcap else {}
    if a.experts:
        fields |= {"expert_used_count": a.experts,
                   "expert_feed_forward_length": fields["feed_forward_length"],
                   "expert_count": weights.shape_of("layers.0.router.weight")[0]}
    if hasattr(config, "use_parallel_residual"):
        fields["use_parallel_residual"] = bool(config.use_parallel_residual)
    common = {key: value for key, value in metadata().items() if not key.startswith("llama.")}
    return {**common, "general.architecture": kind,
            **{f"{kind}.{key}": value for key, value in fields.items()}}


def _base(a: Architecture) -> float:
    """The base of the rotary embedding of the last layer, which sees all positions."""
    rotary = a.layers[-1].rotary
    assert rotary is not None
    count = len(rotary.frequencies)
    return float(round(rotary.frequencies[1] ** -count)) if count > 1 else 10000.0


def _tensors(kind: str, a: Architecture, weights: Weights
             ) -> dict[str, tuple[str, np.ndarray]]:
    found: dict[str, np.ndarray] = {}
    for name in weights.names():
        module, _, part = name.rpartition(".")
        theirs, value = _name(module), weights[name].astype(np.float32)
        if FAMILIES[kind].interleaved and module.endswith((".q", ".k")):
            heads = a.heads if module.endswith(".q") else a.kv_heads
            value = value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(
                value.shape)
        found[f"{theirs}.{part}"] = value
    for number in range(len(a.layers)) if kind in _FUSED else ():
        _fuse(found, f"blk.{number}")
    if kind == "olmo":
        found = {name: value for name, value in found.items() if "norm" not in name}
    if found["output.weight"] is not None and "output.weight" in found and np.array_equal(
            found["output.weight"], found["token_embd.weight"]):
        del found["output.weight"]
    return {name: ("f32", np.ascontiguousarray(value)) for name, value in found.items()}


def _fuse(found: dict[str, np.ndarray], prefix: str) -> None:
    for part in ("weight", "bias"):
        names = [f"{prefix}.attn_{name}.{part}" for name in "qkv"]
        if names[0] in found:
            found[f"{prefix}.attn_qkv.{part}"] = np.concatenate([found.pop(n) for n in names])
    if f"{prefix}.ffn_norm.weight" in found and f"{prefix}.attn_norm.weight" in found \
            and "falcon" in _marks(found, prefix):
        for part in ("weight", "bias"):
            found[f"{prefix}.attn_norm_2.{part}"] = found[f"{prefix}.attn_norm.{part}"]
            found[f"{prefix}.attn_norm.{part}"] = found.pop(f"{prefix}.ffn_norm.{part}")


def _marks(found: Mapping[str, np.ndarray], prefix: str) -> str:
    """Falcon has two norms and no biases of matrices."""
    return "falcon" if f"{prefix}.ffn_up.bias" not in found else ""


def _name(module: str) -> str:
    if module in _MODULES:
        return _MODULES[module]
    number, name = module.removeprefix("layers.").split(".")
    return f"blk.{number}.{_LAYER[name]}"
