"""The program of a decoder: tokens and caches in, logits and caches out.

One program serves prefill, single steps and verification of drafts; its batch, its number of tokens
and its number of logits are symbolic.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import ir, op
from weft.ir.expr import Constant, Expr, Function, Tuple, Var, const, var
from weft.ir.module import IRModule
from weft.models.architecture import Architecture, Rotary, Weights
from weft.models.layers import LayerWeights, dense, mlp, normalize, softcap
from weft.op.nn.cached_attention import attend_cache


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
class _Inputs:
    ids: Var  # [batch, seq]
    positions: Var  # [batch, seq]
    start: Var  # [batch]: number of cached tokens
    lengths: Var  # [batch]: start + seq
    rows: Var  # [count]: tokens whose logits are wanted, numbered row by row
    block_table: Var  # [batch, blocks per row]

    @staticmethod
    def make(caches: CacheShape) -> _Inputs:
        grid = ("batch", "seq")
        return _Inputs(var("ids", grid, "int64"), var("positions", grid, "int64"),
                       var("start", ("batch",), "int64"), var("lengths", ("batch",), "int64"),
                       var("rows", ("count",), "int64"),
                       var("block_table", ("batch", caches.blocks_per_row), "int64"))

    @property
    def params(self) -> tuple[Var, ...]:
        return (self.ids, self.positions, self.start, self.lengths, self.rows, self.block_table)


def decoder_program(architecture: Architecture, weights: Weights, caches: CacheShape, dtype: str
                    ) -> IRModule:
    """The module whose ``main`` takes the inputs above and the caches, ``k0, v0, k1, ...``.

    It returns the logits, float32 [count, vocab], and the caches with the new keys and values.
    """
    main = _ProgramWriter(architecture, weights, caches, dtype).main()
    return ir.infer_type(IRModule.from_expr(main))


def cache_outputs(architecture: Architecture) -> dict[str, str]:
    """The outputs of the program that are next values of caches, with the inputs that these are."""
    names = [f"{kind}{number}" for number in range(len(architecture.layers)) for kind in "kv"]
    return {f"output{number}": name for number, name in enumerate(names, 1)}


class _ProgramWriter:
    def __init__(self, architecture: Architecture, weights: Weights, caches: CacheShape, dtype: str
                 ) -> None:
        self._architecture = architecture
        self._weights = weights
        self._caches = caches
        self._dtype = dtype
        self._inputs = _Inputs.make(caches)
        self._model = LayerWeights(weights, "", dtype)
        self._tables: dict[Rotary, list[Constant]] = {}

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
        return Function((*self._inputs.params, *caches), body)

    def _embed(self) -> Expr:
        architecture, model = self._architecture, self._model
        x = op.take(model["embedding.weight"], self._inputs.ids, axis=0)
        if architecture.embedding_scale != 1.0:
            x = x * const(architecture.embedding_scale, self._dtype)
        if "position_embedding.weight" in model:
            x = x + op.take(model["position_embedding.weight"], self._inputs.positions, axis=0)
        return normalize(x, model, "embedding_norm", architecture)

    def _logits(self, x: Expr) -> Expr:
        architecture, model = self._architecture, self._model
        x = op.take(op.reshape(x, newshape=(-1, architecture.hidden_size)), self._inputs.rows,
                    axis=0)
        x = normalize(x, model, "final_norm", architecture)
        logits = op.cast(dense(x, model, "output"), dtype="float32")
        return softcap(logits, architecture.logit_softcap, "float32")

    def _block(self, x: Expr, number: int, caches: tuple[Var, ...]) -> tuple[Expr, list[Expr]]:
        architecture = self._architecture
        weights = LayerWeights(self._weights, f"layers.{number}.", self._dtype)
        normal = normalize(x, weights, "attention_norm", architecture)
        attended, updated = self._attention(normal, number, weights, caches)
        attended = normalize(attended, weights, "attention_post_norm", architecture)
        if architecture.parallel:
            # Without a norm of its own, the MLP shares that of the attention.
            source = x if "mlp_norm.weight" in weights else normal
            normal = normalize(source, weights, "mlp_norm", architecture)
            return x + attended + mlp(normal, weights, architecture), updated
        x = x + attended
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
            scale=layer.scale, window=layer.window, softcap=architecture.softcap,
            alibi_slopes=const(list(slopes), "float32") if slopes else None)
        width = architecture.heads * architecture.head_dim
        y = op.reshape(op.transpose(y, axes=(0, 2, 1, 3)), newshape=(0, 0, width))
        return dense(y, weights, "attention_output"), [new_keys, new_values]

    def _heads(self, x: Expr, number: int, weights: LayerWeights, name: str, heads: int) -> Expr:
        """Queries, keys or values: [batch, heads, seq, head dim]."""
        architecture = self._architecture
        y = op.reshape(dense(x, weights, name), newshape=(0, 0, heads, architecture.head_dim))
        y = normalize(y, weights, f"{name}_norm", architecture)
        rotary = architecture.layers[number].rotary
        if rotary is not None and name != "v":
            if rotary not in self._tables:  # all layers share the constants
                tables = rotary.tables(self._caches.capacity)
                self._tables[rotary] = [const(table, "float32") for table in tables]
            y = op.nn.rotary_embedding(y, self._inputs.positions, *self._tables[rotary], axis=1,
                                       interleaved=rotary.interleaved)
        return op.transpose(y, axes=(0, 2, 1, 3))
