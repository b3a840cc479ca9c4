"""The layers of decoders as expressions: each function maps expressions to an expression."""

from __future__ import annotations

import math

import numpy as np

from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr, const
from weft.models.architecture import Activation, Architecture, Weights


class LayerWeights:
    """The weights whose names start with a prefix, as constants of a dtype."""

    def __init__(self, weights: Weights, prefix: str, dtype: str) -> None:
        self._weights = weights
        self._prefix = prefix
        self.dtype = dtype

    def __contains__(self, name: str) -> bool:
        return f"{self._prefix}{name}" in self._weights

    def __getitem__(self, name: str) -> Constant:
        return self.constant(self._weights[f"{self._prefix}{name}"])

    def constant(self, array: np.ndarray) -> Constant:
        """``array`` in the dtype of the model; it shares memory if it has this dtype."""
        return Constant(np.asarray(array, DType.of(self.dtype).numpy))


def dense(x: Expr, weights: LayerWeights, name: str) -> Expr:
    """``x`` times the transposed matrix ``name``, plus its bias if it has one."""
    y = op.nn.dense(x, weights[f"{name}.weight"])
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def split_heads(x: Expr, weights: LayerWeights, name: str, heads: int, head_dim: int) -> Expr:
    """The dense layer ``name`` of ``x`` [batch, seq, ...] as [batch, seq, heads, head dim]."""
    return op.reshape(dense(x, weights, name), newshape=(0, 0, heads, head_dim))


def heads_first(x: Expr) -> Expr:
    """[batch, seq, heads, head dim] as [batch, heads, seq, head dim]."""
    return op.transpose(x, axes=(0, 2, 1, 3))


def merge_heads(x: Expr, architecture: Architecture) -> Expr:
    """[batch, heads, seq, head dim] as [batch, seq, heads * head dim]."""
    width = architecture.heads * architecture.head_dim
    return op.reshape(op.transpose(x, axes=(0, 2, 1, 3)), newshape=(0, 0, width))


def normalize(x: Expr, weights: LayerWeights, name: str, architecture: Architecture) -> Expr:
    """Layer norm or RMS norm over the last axis; ``x`` itself without a weight of that name."""
    if f"{name}.weight" not in weights:
        return x
    scale = weights[f"{name}.weight"]
    if architecture.norm == "rms":
        return op.nn.rms_norm(x, scale, epsilon=architecture.epsilon)
    shift = (weights[f"{name}.bias"] if f"{name}.bias" in weights
             else weights.constant(np.zeros(scale.data.shape)))
    return op.nn.layer_norm(x, scale, shift, epsilon=architecture.epsilon)


def activate(x: Expr, kind: Activation, dtype: str) -> Expr:
    def scalar(value: float) -> Constant:
        return const(value, dtype)

    if kind == "relu":
        return op.nn.relu(x)
    if kind == "silu":
        return x * op.sigmoid(x)
    if kind == "gelu":
        gate = op.erf(x * scalar(1 / math.sqrt(2)))
    else:
        gate = op.tanh((x * scalar(math.sqrt(2 / math.pi)))
                       * (x * x * scalar(0.044715) + scalar(1.0)))
    return x * scalar(0.5) * (gate + scalar(1.0))


def softcap(x: Expr, bound: float, dtype: str) -> Expr:
    """``x`` in (-bound, bound): bound * tanh(x / bound). ``x`` itself for a bound of 0."""
    if not bound:
        return x
    return op.tanh(x * const(1 / bound, dtype)) * const(bound, dtype)


def mlp(x: Expr, weights: LayerWeights, architecture: Architecture) -> Expr:
    """Two dense layers around an activation, or a gated MLP (Shazeer, 2020), or a mixture."""
    if "router.weight" in weights:
        return mixture(x, weights, architecture)
    up = dense(x, weights, "up")
    if "gate.weight" not in weights:
        return dense(activate(up, architecture.activation, weights.dtype), weights, "down")
    gate = activate(dense(x, weights, "gate"), architecture.activation, weights.dtype)
    return dense(gate * up, weights, "down")


def mixture(x: Expr, weights: LayerWeights, architecture: Architecture) -> Expr:
    """A mixture of gated MLPs: softmax over the best ``architecture.experts`` experts per token.

    All experts are computed for all tokens; the weights of those that are not selected are 0.
    """
    experts = weights["experts_up.weight"].data.shape[0]
    scores = op.nn.softmax(op.cast(dense(x, weights, "router"), dtype="float32"))
    found = op.topk(scores, k=architecture.experts, axis=-1, dtype="int64")
    best, chosen = found[0], found[1]
    best = best / op.sum(best, axis=(-1,), keepdims=True)
    total: Expr | None = None
    for expert in range(experts):
        selected = op.equal(chosen, const(expert, "int64"))
        share = op.sum(op.where(selected, best, const(0.0, "float32")), axis=(-1,), keepdims=True)
        term = _expert(x, weights, expert, architecture) * op.cast(share, dtype=weights.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total


def _expert(x: Expr, weights: LayerWeights, expert: int, architecture: Architecture) -> Expr:
    gate, up, down = (weights.constant(weights[f"experts_{name}.weight"].data[expert])
                      for name in ("gate", "up", "down"))
    active = activate(op.nn.dense(x, gate), architecture.activation, weights.dtype)
    return op.nn.dense(active * op.nn.dense(x, up), down)
