"""The program of a decoder: tokens and caches in, logits and caches out.

One program serves prefill, single steps and verification of drafts; its batch, its number of tokens
and its number of logits are symbolic.
"""

from __future__ import annotations

import numpy as np

from weft import ir, op
from weft.ir import Constant, Expr, Function, IRModule, Tuple, Var, const, var
from weft.models.architecture import Architecture, Rotary, Weights
from weft.models.layers import (
    LayerWeights,
    Products,
    dense,
    embed,
    heads_first,
    merge_heads,
    mlp,
    normalize,
    softcap,
    split_heads,
)
from weft.op.nn.cached_attention import attend_cache
from weft.support.dataclass import dataclass


@dataclass(frozen=True)
class CacheShape:
    """Caches in blocks: [blocks, kv heads, block size, head dim] per layer, for keys and values."""

    blocks: int
    block_size: int
    blocks_per_row: int
    dtype: str

    @property
    def capacity(self) -> int:
        return self.block_size * self.blocks_per_row

    def of(self, architecture: Architecture) -> tuple[int, int, int, int]:
        return (self.blocks, architecture.kv_heads, self.block_size, architecture.head_dim)


@dataclass(frozen=True)
class SourceShape:
    """Keys and values of encoded sources: [sources, heads, capacity, head dim] per layer."""

    sources: int
    capacity: int

    def of(self, architecture: Architecture) -> tuple[int, int, int, int]:
        return (self.sources, architecture.heads, self.capacity, architecture.head_dim)


@dataclass(frozen=True)
class _Inputs:
    ids: Var  # [batch, seq]
    positions: Var  # [batch, seq]
    start: Var  # [batch]: number of cached tokens
    lengths: Var  # [batch]: start + seq
    rows: Var  # [count]: tokens whose logits are wanted, numbered row by row
    block_table: Var  # [batch, blocks per row]
    # Of a decoder with cross-attention: the number of the source of each row, and its length.
    sources: Var  # [batch, 1]
    source_lengths: Var  # [batch]

    @staticmethod
    def make(caches: CacheShape) -> _Inputs:
        grid = ("batch", "seq")
        return _Inputs(var("ids", grid, "int64"), var("positions", grid, "int64"),
                       var("start", ("batch",), "int64"), var("lengths", ("batch",), "int64"),
                       var("rows", ("count",), "int64"),
                       var("block_table", ("batch", caches.blocks_per_row), "int64"),
                       var("sources", ("batch", 1), "int64"),
                       var("source_lengths", ("batch",), "int64"))

    def params(self, *, crossed: bool) -> tuple[Var, ...]:
        own = (self.ids, self.positions, self.start, self.lengths, self.rows, self.block_table)
        return (*own, self.sources, self.source_lengths) if crossed else own


def decoder_program(architecture: Architecture, weights: Weights, caches: CacheShape, dtype: str,
                    sources: SourceShape | None = None, products: Products | None = None
                    ) -> IRModule:
    """The module whose ``main`` takes the inputs above and the caches, ``k0, v0, k1, ...``.

    It returns the logits, float32 [count, vocab], and the caches with the new keys and values. With
    ``sources`` it also takes their keys and values, ``source_k0, source_v0, source_k1, ...``; then
    come the inputs of adapters, if ``products`` has them.
    """
    main = _ProgramWriter(architecture, weights, caches, dtype, sources,
                          products or Products()).main()
    return ir.infer_type(IRModule.from_expr(main))


def cache_outputs(architecture: Architecture) -> dict[str, str]:
    """The outputs of the program that are next values of caches, with the inputs that these are."""
    names = [f"{kind}{number}" for number in range(len(architecture.layers)) for kind in "kv"]
    return {f"output{number}": name for number, name in enumerate(names, 1)}


class _ProgramWriter:
    def __init__(self, architecture: Architecture, weights: Weights, caches: CacheShape, dtype: str,
                 sources: SourceShape | None, products: Products) -> None:
        self._architecture = architecture
        self._weights = weights
        self._caches = caches
        self._dtype = dtype
        self._inputs = _Inputs.make(caches)
        self._products = products
        self._model = LayerWeights(weights, "", dtype, products)
        self._tables: dict[Rotary, list[Constant]] = {}
        self._sources = sources
        self._source_caches: list[Var] = []
        self._bias = self._relative_bias()

    def main(self) -> Function:
        x = self._embed()
        caches, updated = [], []
        for number in range(len(self._architecture.layers)):
            pair = tuple(var(f"{kind}{number}", self._caches.of(self._architecture),
                             self._caches.dtype) for kind in "kv")
            x, new = self._block(x, number, pair)
            caches.extend(pair)
            updated.extend(new)
        body = Tuple((self._logits(x), *updated))
        inputs = self._inputs.params(crossed=self._sources is not None)
        adapters = (part for pair in self._products.adapters.values() for part in pair)
        return Function((*inputs, *caches, *self._source_caches, *adapters), body)

    def _relative_bias(self) -> Expr | None:
        """T5's bias of the scores, [batch, heads, seq, capacity]; all layers share it."""
        relative, capacity = self._architecture.relative, self._caches.capacity
        if relative is None:
            return None
        buckets = relative.bucket_of(-np.arange(capacity), bidirectional=False)
        table = self._model["relative.weight"].data[buckets]  # [capacity, heads], by distance
        slots = Constant(np.arange(capacity, dtype=np.int64))
        distance = op.expand_dims(self._inputs.positions, axis=2) - slots
        distance = op.maximum(distance, const(0, "int64"))  # later slots are not visible
        return op.transpose(op.take(self._model.constant(table), distance, axis=0),
                            axes=(0, 3, 1, 2))

    def _embed(self) -> Expr:
        architecture, model = self._architecture, self._model
        x = embed(self._inputs.ids, model)
        if architecture.embedding_scale != 1.0:
            x = x * const(architecture.embedding_scale, self._dtype)
        if "position_embedding.weight" in model:
            x = x + op.take(model["position_embedding.weight"], self._inputs.positions, axis=0)
        return normalize(x, model, "embedding_norm", architecture)

    def _logits(self, x: Expr) -> Expr:
        """The logits of the wanted tokens; of a model without that matrix, their states."""
        architecture, model = self._architecture, self._model
        x = op.take(op.reshape(x, newshape=(-1, architecture.hidden_size)), self._inputs.rows,
                    axis=0)
        x = normalize(x, model, "final_norm", architecture)
        if "output.weight" not in model:
            return op.cast(x, dtype="float32")
        logits = op.cast(dense(x, model, "output"), dtype="float32")
        return softcap(logits, architecture.logit_softcap, "float32")

    def _block(self, x: Expr, number: int, caches: tuple[Var, ...]) -> tuple[Expr, list[Expr]]:
        architecture = self._architecture
        weights = LayerWeights(self._weights, f"layers.{number}.", self._dtype, self._products)
        normal = normalize(x, weights, "attention_norm", architecture)
        attended, updated = self._attention(normal, number, weights, caches)
        attended = normalize(attended, weights, "attention_post_norm", architecture)
        if architecture.parallel:
            # Without a norm of its own, the MLP shares that of the attention.
            source = x if "mlp_norm.weight" in weights else normal
            normal = normalize(source, weights, "mlp_norm", architecture)
            return x + attended + mlp(normal, weights, architecture), updated
        x = x + attended
        if self._sources is not None:
            x = x + self._cross_attention(x, number, weights, self._sources)
        normal = normalize(x, weights, "mlp_norm", architecture)
        found = normalize(mlp(normal, weights, architecture), weights, "mlp_post_norm",
                          architecture)
        return x + found, updated

    def _attention(self, x: Expr, number: int, weights: LayerWeights, caches: tuple[Var, ...]
                   ) -> tuple[Expr, list[Expr]]:
        architecture, inputs = self._architecture, self._inputs
        layer = architecture.layers[number]
        q = self._heads(x, number, weights, "q", architecture.heads)
        k = self._heads(x, number, weights, "k", architecture.kv_heads)
        v = self._heads(x, number, weights, "v", architecture.kv_heads)
        new_keys, new_values = (
            op.nn.paged_cache_update(cache, new, inputs.start, inputs.block_table)
            for cache, new in zip(caches, (k, v), strict=True))
        slopes = architecture.alibi_slopes
        y = attend_cache(
            q, new_keys, new_values, inputs.lengths, block_table=inputs.block_table,
            scale=layer.scale, window=layer.window, softcap=architecture.softcap, bias=self._bias,
            alibi_slopes=const(list(slopes), "float32") if slopes else None)
        y = merge_heads(y, architecture)
        return dense(y, weights, "attention_output"), [new_keys, new_values]

    def _cross_attention(self, x: Expr, number: int, weights: LayerWeights, sources: SourceShape
                         ) -> Expr:
        """Attention to all positions of the source of each row; sequences may share a source.

        The keys and values of a source are a block of the capacity of a source, so that the number
        of a source is a row of a block table.
        """
        architecture, inputs = self._architecture, self._inputs
        k, v = (var(f"source_{kind}{number}", sources.of(architecture), self._caches.dtype)
                for kind in "kv")
        self._source_caches += [k, v]
        normal = normalize(x, weights, "cross_norm", architecture)
        q = heads_first(split_heads(normal, weights, "cross_q", architecture.heads,
                                    architecture.head_dim))
        y = attend_cache(q, k, v, inputs.source_lengths, block_table=inputs.sources, causal=False,
                         scale=architecture.layers[number].scale)
        return dense(merge_heads(y, architecture), weights, "cross_output")

    def _heads(self, x: Expr, number: int, weights: LayerWeights, name: str, heads: int) -> Expr:
        """Queries, keys or values: [batch, heads, seq, head dim]."""
        architecture = self._architecture
        y, norm = dense(x, weights, name), f"{name}_norm"
        # Of all heads together (OLMo 2), or of each head.
        together = (f"{norm}.weight" in weights
                    and weights[f"{norm}.weight"].data.size == heads * architecture.head_dim)
        y = normalize(y, weights, norm, architecture) if together else y
        y = op.reshape(y, newshape=(0, 0, heads, architecture.head_dim))
        y = y if together else normalize(y, weights, norm, architecture)
        rotary = architecture.layers[number].rotary
        if rotary is not None and name != "v":
            if rotary not in self._tables:  # all layers share the constants
                tables = rotary.tables(self._caches.capacity)
                self._tables[rotary] = [const(table, "float32") for table in tables]
            y = op.nn.rotary_embedding(y, self._inputs.positions, *self._tables[rotary], axis=1,
                                       interleaved=rotary.interleaved)
        return heads_first(y)
