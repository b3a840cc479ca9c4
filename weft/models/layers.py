"""The layers of decoders as expressions: each function maps expressions to an expression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from weft import op
from weft.ir import Constant, DType, Expr, Span, Var, const, var
from weft.models.architecture import Activation, Architecture, BlockWeight, Weights
from weft.support.dataclass import dataclass


@dataclass(frozen=True)
class Products:
    """How matrices are multiplied: what those in blocks read of activations, and adapters.

    Each matrix of a layer has inputs for a low-rank adapter of ``rank``, unless that is 0:
    A (rank, in) and B (out, rank), by the name of the matrix, for ``x @ A.T @ B.T``.
    """

    activations: str = "float32"
    rank: int = 0
    adapters: dict[str, tuple[Var, Var]] = field(default_factory=dict)

    def adapted(self, x: Expr, name: str, shape: Sequence[int], dtype: str) -> Expr:
        """The product of the adapter of a matrix of this shape."""
        if name not in self.adapters:
            self.adapters[name] = (var(f"{name}.lora_a", (self.rank, shape[1]), dtype),
                                   var(f"{name}.lora_b", (shape[0], self.rank), dtype))
        down, up = self.adapters[name]
        return op.nn.dense(op.nn.dense(x, down), up)


class LayerWeights:
    """The weights whose names start with a prefix, as constants of a dtype."""

    def __init__(self, weights: Weights, prefix: str, dtype: str,
                 products: Products | None = None) -> None:
        self._weights = weights
        self._prefix = prefix
        self.dtype = dtype
        self.products = products or Products()

    def __contains__(self, name: str) -> bool:
        return f"{self._prefix}{name}" in self._weights

    def __getitem__(self, name: str) -> Constant:
        found = self.constant(self._weights[f"{self._prefix}{name}"])
        return found.replace(span=Span("the weights", node=f"{self._prefix}{name}"))

    def adapted(self, x: Expr, name: str) -> Expr | None:
        """What an adapter adds to the product of ``x``; ``None`` without adapters."""
        full = f"{self._prefix}{name}"
        if not self.products.rank or not self._prefix:
            return None
        return self.products.adapted(x, full, self._weights.shape_of(f"{full}.weight"), self.dtype)

    def blocks(self, name: str) -> BlockWeight | None:
        return self._weights.blocks(f"{self._prefix}{name}")

    def constant(self, array: np.ndarray) -> Constant:
        """``array`` in the dtype of the model; it shares memory if it has this dtype."""
        return Constant(np.asarray(array, DType.of(self.dtype).numpy))


def dense(x: Expr, weights: LayerWeights, name: str) -> Expr:
    """``x`` times the transposed matrix ``name``, plus its bias if it has one."""
    blocks = weights.blocks(f"{name}.weight")
    y = (op.nn.dense(x, weights[f"{name}.weight"]) if blocks is None else
         op.nn.block_quantized_dense(x, blocks.constant, format=blocks.format,
                                     activations=weights.products.activations))
    adapted = weights.adapted(x, name)
    y = y if adapted is None else y + adapted
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def embed(ids: Expr, weights: LayerWeights) -> Expr:
    """The rows of the embedding that ``ids`` name; of blocks, these rows alone are expanded."""
    blocks = weights.blocks("embedding.weight")
    if blocks is None:
        return op.take(weights["embedding.weight"], ids, axis=0)
    return op.nn.block_dequantize(op.take(blocks.constant, ids, axis=0), format=blocks.format,
                                  dtype=weights.dtype)


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

    Tokens are sorted by expert, once for each of their experts, so that an expert multiplies its
    own tokens alone and the matrices of experts without tokens are not read (MegaBlocks, Gale et
    al., 2022).
    """
    count, selected = weights["experts_up.weight"].data.shape[0], architecture.experts
    tokens = op.reshape(x, newshape=(-1, architecture.hidden_size))
    scores = op.nn.softmax(op.cast(dense(tokens, weights, "router"), dtype="float32"))
    found = op.topk(scores, k=selected, axis=-1, dtype="int64")
    best, chosen = found[0], op.reshape(found[1], newshape=(-1,))
    best = best / op.sum(best, axis=(-1,), keepdims=True)
    order = op.argsort(chosen, axis=0, dtype="int64")
    sizes = op.sum(op.cast(op.equal(op.expand_dims(chosen, axis=0),
                                    Constant(np.arange(count)[:, None])), dtype="int64"), axis=(1,))
    rows = op.take(tokens, op.floor_divide(order, const(selected, "int64")), axis=0)
    rows = _experts(rows, sizes, weights, architecture)
    # Back to the order of tokens, where a token has a row for each of its experts.
    rows = op.take(rows, op.argsort(order, axis=0, dtype="int64"), axis=0)
    rows = op.reshape(rows, newshape=(-1, selected, architecture.hidden_size))
    shares = op.expand_dims(op.cast(best, dtype=weights.dtype), axis=2)
    return op.reshape_like(op.sum(rows * shares, axis=(1,)), x)


def _experts(x: Expr, sizes: Expr, weights: LayerWeights, architecture: Architecture) -> Expr:
    """The gated MLP of expert e for ``sizes[e]`` rows of ``x``, which are sorted by expert."""
    def product(x: Expr, name: str) -> Expr:
        return op.nn.grouped_matmul(x, weights[f"experts_{name}.weight"], sizes)

    active = activate(product(x, "gate"), architecture.activation, weights.dtype)
    return product(active * product(x, "up"), "down")
