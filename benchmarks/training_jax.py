"""The losses of the benchmarks' models in JAX, as functions of torch's state dictionaries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from benchmarks.training_models import LENGTH

Weights = Mapping[str, Any]


def _linear(w: Weights, name: str, x: Any) -> Any:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def _cross_entropy(logits: Any, classes: Any) -> Any:
    rows = jax.nn.log_softmax(logits.reshape(-1, logits.shape[-1]))
    return -jnp.take_along_axis(rows, classes.reshape(-1, 1), 1).mean()


def mlp(w: Weights, x: Any, y: Any) -> Any:
    for name in ("0", "2"):
        x = jax.nn.relu(_linear(w, name, x))
    return _cross_entropy(_linear(w, "4", x), y)


def _block(w: Weights, prefix: str, number: int, x: Any, stride: int = 1) -> Any:
    """Convolution, batch norm over the batch, ReLU."""
    kernel, bias = w[f"{prefix}{number}.weight"], w[f"{prefix}{number}.bias"]
    pad = kernel.shape[-1] // 2
    x = lax.conv_general_dilated(x, kernel, (stride, stride), ((pad, pad), (pad, pad)))
    x = x + bias[:, None, None]
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    normal = (x - mean) * lax.rsqrt(variance + 1e-5)
    scale, shift = (w[f"{prefix}{number + 1}.{part}"][:, None, None] for part in ("weight", "bias"))
    return jax.nn.relu(normal * scale + shift)


def resnet9(w: Weights, x: Any, y: Any) -> Any:
    def pair(number: int, x: Any) -> Any:
        return x + _block(w, f"{number}.body.", 3, _block(w, f"{number}.body.", 0, x))

    x = pair(6, _block(w, "", 3, _block(w, "", 0, x, 4), 2))
    x = pair(13, _block(w, "", 10, _block(w, "", 7, x, 2), 2))
    x = jax.nn.relu(_linear(w, "15", x.reshape(len(x), -1)))
    return _cross_entropy(_linear(w, "17", x), y)


def _lstm_cell(state: Any, gates: Any, w: Weights) -> tuple[Any, Any]:
    out, memory = state
    i, f, g, o = jnp.split(gates + w["bias_hh"] + out @ w["weight_hh"].T, 4, 1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    out = jax.nn.sigmoid(o) * jnp.tanh(memory)
    return (out, memory), out


def _gru_cell(state: Any, gates: Any, w: Weights) -> tuple[Any, Any]:
    out, _ = state
    r, z, n = jnp.split(gates, 3, 1)
    own = jnp.split(w["bias_hh"] + out @ w["weight_hh"].T, 3, 1)
    z = jax.nn.sigmoid(z + own[1])
    n = jnp.tanh(n + jax.nn.sigmoid(r + own[0]) * own[2])
    out = (1 - z) * n + z * out
    return (out, out), out


def _recurrent(cell: Callable[[Any, Any, Weights], tuple[Any, Any]]
               ) -> Callable[[Weights, Any, Any], Any]:
    def loss(w: Weights, x: Any, y: Any) -> Any:
        h = w["embedding.weight"][x].transpose(1, 0, 2)
        for layer in range(2):
            ours = {k: w[f"layers.{k}_l{layer}"]
                    for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            gates = h @ ours["weight_ih"].T + ours["bias_ih"]
            zero = jnp.zeros((x.shape[0], 128), jnp.float32)
            _, h = lax.scan(functools.partial(cell, w=ours), (zero, zero), gates)
        return _cross_entropy(_linear(w, "last", h.transpose(1, 0, 2)), y)

    return loss


def _norm(w: Weights, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    deviation = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return centred * deviation * w[f"{name}.weight"] + w[f"{name}.bias"]


def _transformer(*, causal: bool) -> Callable[[Weights, Any, Any], Any]:
    def loss(w: Weights, x: Any, y: Any) -> Any:
        batch = x.shape[0]
        x = w["words.weight"][x] + w["places.weight"]
        for block in (f"blocks.{i}." for i in range(4)):
            parts = _linear(w, f"{block}qkv", _norm(w, f"{block}norm1", x))
            q, k, v = (parts.reshape(batch, LENGTH, 3, 4, 64)[:, :, i] for i in range(3))
            seen = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
            x = x + _linear(w, f"{block}out", seen.reshape(batch, LENGTH, 256))
            wide = _linear(w, f"{block}up", _norm(w, f"{block}norm2", x))
            x = x + _linear(w, f"{block}down", jax.nn.gelu(wide, approximate=False))
        return _cross_entropy(_linear(w, "last", _norm(w, "norm", x)), y)

    return loss


LOSSES: Mapping[str, Callable[[Weights, Any, Any], Any]] = {
    "mlp": mlp, "resnet9": resnet9, "lstm": _recurrent(_lstm_cell),
    "gru": _recurrent(_gru_cell), "gpt2": _transformer(causal=True),
    "bert": _transformer(causal=False)}
