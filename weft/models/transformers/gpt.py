"""Models with layer norm: GPT-2 (learned positions), Phi (parallel blocks), Bloom (ALiBi)."""

from __future__ import annotations

import math

import numpy as np

from weft.models.architecture import Architecture, Layer
from weft.models.transformers.source import Source


def gpt2(source: Source) -> Architecture:
    """GPT-2; its linear layers hold transposed matrices, and one for q, k and v."""
    config = source.config
    if not config.scale_attn_weights:
        raise source.refuse("attention with unscaled scores")
    source.take("transformer.wte", "embedding")
    source.take("transformer.wpe", "position_embedding")
    source.take("transformer.ln_f", "final_norm")
    source.take_output()
    for number in range(config.n_layer):
        theirs, ours = f"transformer.h.{number}", f"layers.{number}"
        _split_qkv(source, f"{theirs}.attn.c_attn", ours, transposed=True)
        source.take(f"{theirs}.attn.c_proj", f"{ours}.attention_output", transposed=True)
        source.take(f"{theirs}.ln_1", f"{ours}.attention_norm")
        source.take(f"{theirs}.ln_2", f"{ours}.mlp_norm")
        source.take(f"{theirs}.mlp.c_fc", f"{ours}.up", transposed=True)
        source.take(f"{theirs}.mlp.c_proj", f"{ours}.down", transposed=True)
    head_dim = config.n_embd // config.n_head
    inverse = config.scale_attn_by_inverse_layer_idx
    return Architecture(
        vocab_size=config.vocab_size, hidden_size=config.n_embd, heads=config.n_head,
        kv_heads=config.n_head, head_dim=head_dim,
        layers=tuple(Layer(scale=head_dim ** -0.5 / (i + 1 if inverse else 1))
                     for i in range(config.n_layer)),
        norm="layer", epsilon=config.layer_norm_epsilon,
        activation=source.activation(config.activation_function),
        max_positions=config.n_positions)


def _split_qkv(source: Source, theirs: str, ours: str, *, transposed: bool) -> None:
    """A matrix and a bias whose rows (columns if ``transposed``) are those of q, k and v."""
    weight, bias = source.array(f"{theirs}.weight"), source.array(f"{theirs}.bias")
    for name, matrix, vector in zip(
            "qkv", np.split(weight.T if transposed else weight, 3), np.split(bias, 3),
            strict=True):
        source.arrays[f"{ours}.{name}.weight"] = np.ascontiguousarray(matrix)
        source.arrays[f"{ours}.{name}.bias"] = vector


def phi(source: Source) -> Architecture:
    """Phi 1 and 2: attention and MLP of one normalised input, rotary for a part of each head."""
    config = source.config
    source.take("model.embed_tokens", "embedding")
    source.take("model.final_layernorm", "final_norm")
    source.take_output()
    for number in range(config.num_hidden_layers):
        theirs, ours = f"model.layers.{number}", f"layers.{number}"
        for name, new in (("self_attn.q_proj", "q"), ("self_attn.k_proj", "k"),
                          ("self_attn.v_proj", "v"), ("self_attn.dense", "attention_output"),
                          ("self_attn.q_layernorm", "q_norm"), ("self_attn.k_layernorm", "k_norm"),
                          ("input_layernorm", "attention_norm"), ("mlp.fc1", "up"),
                          ("mlp.fc2", "down")):
            source.take(f"{theirs}.{name}", f"{ours}.{new}")
    head_dim = config.hidden_size // config.num_attention_heads
    layer = Layer(scale=head_dim ** -0.5, rotary=source.rotary(source.model.model.rotary_emb))
    return Architecture(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size,
        heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, head_dim=head_dim,
        layers=(layer,) * config.num_hidden_layers, norm="layer", epsilon=config.layer_norm_eps,
        activation=source.activation(config.hidden_act), parallel=True)


def bloom(source: Source) -> Architecture:
    """Bloom: ALiBi, a norm of the embedding, and q, k and v interleaved by head."""
    config = source.config
    if config.apply_residual_connection_post_layernorm:
        raise source.refuse("a residual after the norm")
    source.take("transformer.word_embeddings", "embedding")
    source.take("transformer.word_embeddings_layernorm", "embedding_norm")
    source.take("transformer.ln_f", "final_norm")
    source.take_output()
    heads, hidden = config.n_head, config.hidden_size
    for number in range(config.n_layer):
        theirs, ours = f"transformer.h.{number}", f"layers.{number}"
        fused = f"{theirs}.self_attention.query_key_value"
        weight = source.array(f"{fused}.weight").reshape(heads, 3, -1, hidden)
        bias = source.array(f"{fused}.bias").reshape(heads, 3, -1)
        for part, name in enumerate("qkv"):
            source.arrays[f"{ours}.{name}.weight"] = weight[:, part].reshape(-1, hidden)
            source.arrays[f"{ours}.{name}.bias"] = bias[:, part].reshape(-1)
        for name, new in (("self_attention.dense", "attention_output"),
                          ("input_layernorm", "attention_norm"),
                          ("post_attention_layernorm", "mlp_norm"),
                          ("mlp.dense_h_to_4h", "up"), ("mlp.dense_4h_to_h", "down")):
            source.take(f"{theirs}.{name}", f"{ours}.{new}")
    head_dim = hidden // heads
    return Architecture(
        vocab_size=config.vocab_size, hidden_size=hidden, heads=heads, kv_heads=heads,
        head_dim=head_dim, layers=(Layer(scale=head_dim ** -0.5),) * config.n_layer, norm="layer",
        epsilon=config.layer_norm_epsilon, activation="gelu_tanh",
        alibi_slopes=alibi_slopes(heads))


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """The slopes of ALiBi: a geometric sequence, interleaved with a second one (Press et al.)."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 / power * (i + 1)) for i in range(power)]
    extra = [2 ** (-4 / power * (2 * i + 1)) for i in range(heads - power)]
    return (*slopes, *extra)
