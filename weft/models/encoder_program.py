"""The program of an encoder: a source in, keys and values of all layers of the decoder out.

The decoder's cross-attention reads them at every step; they are computed once per source.
"""

from __future__ import annotations

import numpy as np

from weft import ir, op
from weft.ir import Expr, Function, IRModule, Tuple, Var, const, var
from weft.models.architecture import (
    Architecture,
    EncoderDecoderArchitecture,
    Weights,
)
from weft.models.layers import (
    LayerWeights,
    activate,
    dense,
    heads_first,
    merge_heads,
    mlp,
    normalize,
    split_heads,
)


def encoder_program(architecture: EncoderDecoderArchitecture, weights: Weights, capacity: int,
                    dtype: str) -> IRModule:
    """The module whose ``main`` returns ``k0, v0, k1, ...``, each [batch, heads, seq, head dim].

    It takes ``ids``, int64 [batch, seq], and ``positions``, int64 [seq], of at most ``capacity``
    tokens; or, if the encoder reads spectrograms, ``features``, float32 [batch, bins, frames].
    """
    return ir.infer_type(IRModule.from_expr(
        _ProgramWriter(architecture, weights, capacity, dtype).main()))


class _ProgramWriter:
    def __init__(self, architecture: EncoderDecoderArchitecture, weights: Weights, capacity: int,
                 dtype: str) -> None:
        self._decoder = architecture.decoder
        self._encoder = architecture.encoder
        self._blocks: Architecture = architecture.encoder.blocks
        self._weights = weights
        self._capacity = capacity
        self._dtype = dtype
        self._model = LayerWeights(weights, "encoder.", dtype)

    def main(self) -> Function:
        params, x, bias = self._signal() if self._encoder.bins else self._tokens()
        for number, layer in enumerate(self._blocks.layers):
            weights = LayerWeights(self._weights, f"encoder.layers.{number}.", self._dtype)
            x = x + self._attention(x, weights, layer.scale, bias)
            x = x + mlp(normalize(x, weights, "mlp_norm", self._blocks), weights, self._blocks)
        x = normalize(x, self._model, "final_norm", self._blocks)
        found: list[Expr] = []
        for number in range(len(self._decoder.layers)):
            weights = LayerWeights(self._weights, f"layers.{number}.", self._dtype)
            found += [heads_first(split_heads(x, weights, f"cross_{name}", self._decoder.heads,
                                              self._decoder.head_dim)) for name in "kv"]
        return Function(params, Tuple(tuple(found)))

    def _tokens(self) -> tuple[tuple[Var, ...], Expr, Expr | None]:
        """Parameters, embedded tokens, and the bias of the scores."""
        ids, positions = var("ids", ("batch", "seq"), "int64"), var("positions", ("seq",), "int64")
        x = op.take(self._model["embedding.weight"], ids, axis=0)
        return (ids, positions), x, self._relative_bias(positions)

    def _relative_bias(self, positions: Var) -> Expr | None:
        """[1, heads, seq, seq]; a table holds it by key position less query position."""
        relative, most = self._blocks.relative, self._capacity - 1
        if relative is None:
            return None
        buckets = relative.bucket_of(np.arange(-most, most + 1), bidirectional=True)
        table = self._model.constant(self._model["relative.weight"].data[buckets])
        difference = positions - op.expand_dims(positions, axis=1) + const(most, "int64")
        found = op.transpose(op.take(table, difference, axis=0), axes=(2, 0, 1))
        return op.expand_dims(found, axis=0)

    def _signal(self) -> tuple[tuple[Var, ...], Expr, Expr | None]:
        """Two convolutions over frames, the second of which halves their number."""
        features = var("features", ("batch", self._encoder.bins, self._encoder.frames), "float32")
        x: Expr = op.cast(features, dtype=self._dtype)
        for name, stride in (("conv1", 1), ("conv2", 2)):
            bias = op.expand_dims(self._model[f"{name}.bias"], axis=1)
            x = op.nn.conv1d(x, self._model[f"{name}.weight"], padding=(1,), strides=(stride,))
            x = activate(x + bias, self._blocks.activation, self._dtype)
        x = op.transpose(x, axes=(0, 2, 1))
        return (features,), x + self._model["position_embedding.weight"], None

    def _attention(self, x: Expr, weights: LayerWeights, scale: float, bias: Expr | None) -> Expr:
        blocks = self._blocks
        normal = normalize(x, weights, "attention_norm", blocks)
        q, k, v = (heads_first(split_heads(normal, weights, name, blocks.heads, blocks.head_dim))
                   for name in "qkv")
        y = (op.nn.attention(q, k, v, scale=scale) if bias is None
             else op.nn.masked_attention(q, k, v, bias, scale=scale))
        return dense(merge_heads(y, blocks), weights, "attention_output")
