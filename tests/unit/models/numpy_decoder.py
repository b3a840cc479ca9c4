"""The logits of a decoder by NumPy in float64, without caches: the reference of its program."""

from __future__ import annotations

import math

import numpy as np

from weft.models import Architecture, Weights


def logits(architecture: Architecture, weights: Weights, ids: np.ndarray) -> np.ndarray:
    """[tokens, vocab] for one sequence of tokens."""
    return _Reference(architecture, weights).logits(ids)


class _Reference:
    def __init__(self, architecture: Architecture, weights: Weights) -> None:
        self.a = architecture
        self.w = weights

    def logits(self, ids: np.ndarray) -> np.ndarray:
        x = self.w["embedding.weight"][ids].astype(np.float64) * self.a.embedding_scale
        if "position_embedding.weight" in self.w:
            x = x + self.w["position_embedding.weight"][:len(ids)]
        x = self.norm(x, "embedding_norm")
        for number in range(len(self.a.layers)):
            x = self.block(x, number)
        found = self.dense(self.norm(x, "final_norm"), "output")
        bound = self.a.logit_softcap
        return bound * np.tanh(found / bound) if bound else found

    def block(self, x: np.ndarray, number: int) -> np.ndarray:
        prefix = f"layers.{number}."
        normal = self.norm(x, f"{prefix}attention_norm")
        attended = self.norm(self.attention(normal, number), f"{prefix}attention_post_norm")
        if self.a.parallel:
            return x + attended + self.mlp(normal, prefix)
        x = x + attended
        found = self.mlp(self.norm(x, f"{prefix}mlp_norm"), prefix)
        return x + self.norm(found, f"{prefix}mlp_post_norm")

    def attention(self, x: np.ndarray, number: int) -> np.ndarray:
        a, layer, prefix, count = self.a, self.a.layers[number], f"layers.{number}.", len(x)
        q, k, v = (self.dense(x, prefix + name).reshape(count, -1, a.head_dim) for name in "qkv")
        q, k = (self.rotate(self.norm(y, f"{prefix}{name}_norm"), number)
                for y, name in ((q, "q"), (k, "k")))
        k, v = (np.repeat(y, a.heads // a.kv_heads, axis=1) for y in (k, v))
        scores = layer.scale * np.einsum("qhd,khd->hqk", q, k)
        if a.softcap:
            scores = a.softcap * np.tanh(scores / a.softcap)
        distance = np.arange(count)[:, None] - np.arange(count)
        if a.alibi_slopes:
            scores = scores - np.array(a.alibi_slopes)[:, None, None] * distance
        visible = (distance >= 0) & (distance < (layer.window or math.inf))
        found = np.einsum("hqk,khd->qhd", _softmax(np.where(visible, scores, -np.inf)), v)
        return self.dense(found.reshape(count, -1), f"{prefix}attention_output")

    def rotate(self, x: np.ndarray, number: int) -> np.ndarray:
        rotary = self.a.layers[number].rotary
        if rotary is None:
            return x
        pairs = len(rotary.frequencies)
        cos, sin = (t[:, None] for t in rotary.tables(len(x)))
        if rotary.interleaved:
            first, second, rest = x[..., :2 * pairs:2], x[..., 1:2 * pairs:2], x[..., 2 * pairs:]
            both = np.stack([first * cos - second * sin, second * cos + first * sin], -1)
            return np.concatenate([both.reshape(*x.shape[:-1], 2 * pairs), rest], -1)
        first, second, rest = np.split(x, [pairs, 2 * pairs], axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def mlp(self, x: np.ndarray, prefix: str) -> np.ndarray:
        if f"{prefix}router.weight" in self.w:
            return self.mixture(x, prefix)
        up = self.dense(x, f"{prefix}up")
        if f"{prefix}gate.weight" not in self.w:
            return self.dense(self.activate(up), f"{prefix}down")
        return self.dense(self.activate(self.dense(x, f"{prefix}gate")) * up, f"{prefix}down")

    def mixture(self, x: np.ndarray, prefix: str) -> np.ndarray:
        shares = _softmax(self.dense(x, f"{prefix}router"))
        best = np.argsort(-shares, axis=-1)[:, :self.a.experts]
        result = np.zeros_like(x)
        gate, up, down = (self.w[f"{prefix}experts_{n}.weight"] for n in ("gate", "up", "down"))
        for token, experts in enumerate(best):
            for e in experts:
                hidden = self.activate(x[token] @ gate[e].T) * (x[token] @ up[e].T)
                result[token] += shares[token, e] / shares[token, experts].sum() * (
                    hidden @ down[e].T)
        return result

    def dense(self, x: np.ndarray, name: str) -> np.ndarray:
        y = x @ self.w[f"{name}.weight"].T.astype(np.float64)
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        if f"{name}.weight" not in self.w:
            return x
        if self.a.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + self.a.epsilon)
        bias = self.w.get(f"{name}.bias")
        return x * self.w[f"{name}.weight"] + (0 if bias is None else bias)

    def activate(self, x: np.ndarray) -> np.ndarray:
        if self.a.activation == "relu":
            return np.maximum(x, 0)
        if self.a.activation == "silu":
            return x / (1 + np.exp(-x))
        if self.a.activation == "gelu":
            return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
