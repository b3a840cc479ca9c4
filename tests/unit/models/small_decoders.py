"""Small architectures with random weights, which together use every feature of the program."""

from __future__ import annotations

import numpy as np

from weft.models import Architecture, Layer, Rotary, Weights

_ROTARY = Rotary((1.0, 0.3, 0.1, 0.02))
_SIZES = {"vocab_size": 23, "hidden_size": 16, "heads": 4, "head_dim": 8}

ARCHITECTURES: dict[str, Architecture] = {
    # As GPT-2 and Bloom: layer norm, biases, learned positions, ALiBi.
    "layer_norm": Architecture(
        **_SIZES, kv_heads=4, layers=(Layer(scale=0.35),), norm="layer", epsilon=1e-5,
        activation="gelu_tanh", alibi_slopes=(0.5, 0.25, 0.125, 0.0625)),
    # As Gemma: grouped heads, windows in some layers, norms around sub-layers, bounded scores.
    "rms_norm": Architecture(
        **_SIZES, kv_heads=2, layers=(Layer(scale=0.3, window=5, rotary=_ROTARY),
                                      Layer(scale=0.3, rotary=_ROTARY)),
        norm="rms", epsilon=1e-6, activation="silu", softcap=2.0, logit_softcap=3.0,
        embedding_scale=4.0),
    # As Phi: attention and MLP of one norm, rotary for a part of each head.
    "parallel": Architecture(
        **_SIZES, kv_heads=4, layers=(Layer(scale=0.35, rotary=Rotary((1.0, 0.1))),),
        norm="layer", epsilon=1e-5, activation="gelu", parallel=True),
    # As Mixtral.
    "mixture": Architecture(
        **_SIZES, kv_heads=2, layers=(Layer(scale=0.35, rotary=_ROTARY),), norm="rms",
        epsilon=1e-5, activation="silu", experts=2),
}


def random_weights(name: str, seed: int = 0) -> Weights:
    """Weights for the architecture ``name``."""
    architecture, rng = ARCHITECTURES[name], np.random.default_rng(seed)
    hidden, inner = architecture.hidden_size, 24
    width, kv_width = (n * architecture.head_dim for n in
                       (architecture.heads, architecture.kv_heads))
    arrays: dict[str, np.ndarray] = {}

    def add(key: str, *shape: int) -> None:
        offset, scale = (1.0, 0.2) if "norm" in key else (0.0, 0.6)
        arrays[f"{key}.weight"] = (offset + scale * rng.normal(size=shape)).astype(np.float32)
        if architecture.norm == "layer" and "embedding" not in key:
            arrays[f"{key}.bias"] = (0.2 * rng.normal(size=shape[0])).astype(np.float32)

    add("embedding", architecture.vocab_size, hidden)
    if name == "layer_norm":
        add("position_embedding", 64, hidden)
        add("embedding_norm", hidden)
    add("final_norm", hidden)
    add("output", architecture.vocab_size, hidden)
    for number in range(len(architecture.layers)):
        layer = f"layers.{number}."
        add(f"{layer}attention_norm", hidden)
        for key, rows in (("q", width), ("k", kv_width), ("v", kv_width)):
            add(layer + key, rows, hidden)
        add(f"{layer}attention_output", hidden, width)
        if name == "rms_norm":
            for key, size in (("q_norm", 8), ("k_norm", 8), ("attention_post_norm", hidden),
                              ("mlp_post_norm", hidden)):
                add(layer + key, size)
        if name != "parallel":
            add(f"{layer}mlp_norm", hidden)
        if architecture.experts:
            add(f"{layer}router", 4, hidden)
            for key, shape in (("gate", (4, inner, hidden)), ("up", (4, inner, hidden)),
                               ("down", (4, hidden, inner))):
                add(f"{layer}experts_{key}", *shape)
            continue
        for key in ("gate", "up") if architecture.norm == "rms" else ("up",):
            add(layer + key, inner, hidden)
        add(f"{layer}down", hidden, inner)
    return Weights(arrays)
