"""The loops of the gradient of attention: blocks of keys by blocks of queries, scores in scratch.

After Dao, "FlashAttention-2" (2023), section 3.1. One task is a head of keys with all query heads
that share it, so every sum has one writer and a fixed order. A first pass over the blocks finds the
maximum and the sum of exponentials of each query; in the second, each block of keys is multiplied
with all blocks of queries that see it: scores and weights are computed again, and five small matrix
products add to the gradients. Blocks are padded with zeros; padding gets weight zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from weft.ir import float32, int64
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import LOWEST, broadcast_load, defined
from weft.strategy.cpu.attention.decode_loops import below, unrolled, with_row_sums
from weft.strategy.cpu.attention.fused_tile import in_tiles, loop
from weft.strategy.cpu.attention.small_gemm import SmallGemm
from weft.support.dataclass import dataclass
from weft.te import exp
from weft.tir import Buffer, PrimExpr, Ramp, Var, all_of, const, int_value, maximum, minimum, select
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, LetStmt, Stmt, seq
from weft.tir.transform.transpose_tile import ANNOTATION as TRANSPOSE

QUERIES, KEYS = 48, 64  # of a block: multiples of the register tiles, whose operands fit in L1


@dataclass(frozen=True, slots=True)
class BackwardLoops:
    """Builds the statement over ``(dy, y, q, k, v[, mask])`` and ``(dq, dk, dv)``, all float32.

    The mask is float32 or bool; ``offset`` is that of causality if hidden keys need not be read.
    """

    attrs: AttentionAttrs
    offset: int | None
    gemm: SmallGemm

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        k = inputs[3]

        def task(index: PrimExpr) -> Stmt:
            at = unravel(index, k.shape[:-2])
            return _Task(self.attrs, self.offset, self.gemm, inputs, outputs, at).build()

        return loop("task", element_count(k.shape[:-2]), task, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The buffers of a task; those of a block have constant sizes."""

    top: Buffer  # [heads, queries]: the maximum of the scores
    total: Buffer  # [heads, queries]: the sum of exponentials
    drift: Buffer  # [heads, queries]: the sum of dy * y
    queries_t: Buffer  # [depth, queries], scaled
    scores_t: Buffer  # [keys, queries]
    keys: Buffer  # [keys, depth]
    keys_t: Buffer  # [depth, keys]
    values: Buffer  # [keys, width]
    values_t: Buffer  # [width, keys]
    queries: Buffer  # [queries, depth], scaled
    arriving: Buffer  # [queries, width]: dy
    weights: Buffer  # [queries, keys]: scores, then weights
    spread: Buffer  # [queries, keys]: dy vT, then the gradient of the scores
    d_key: Buffer  # [keys, depth]
    d_value: Buffer  # [keys, width]
    d_query: Buffer  # [queries, depth]

    def around(self, body: Stmt) -> Stmt:
        for field in fields(self):
            body = Allocate(getattr(self, field.name), body)
        return body


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of queries of one head: ``head`` of the group, first query, its leading indices."""

    head: PrimExpr
    first: PrimExpr
    at: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """The head of keys at ``at``."""

    attrs: AttentionAttrs
    offset: int | None
    gemm: SmallGemm
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    at: tuple[PrimExpr, ...]

    @property
    def lanes(self) -> int:
        return self.gemm.lanes

    @property
    def sizes(self) -> tuple[int, int]:
        """Depth and width, padded to whole vectors."""
        _, _, _, k, v, *_ = self.inputs
        depth, width = (int_value(x.shape[-1]) or 0 for x in (k, v))
        return tuple(-(-n // self.lanes) * self.lanes for n in (depth, width))  # type: ignore[return-value]

    @property
    def mask(self) -> Buffer | None:
        return self.inputs[5] if len(self.inputs) > 5 else None

    @property
    def group(self) -> int:
        """Query heads that share keys."""
        q, k = self.inputs[2], self.inputs[3]
        if q.ndim < 3:
            return 1
        return (int_value(q.shape[-3]) or 1) // (int_value(k.shape[-3]) or 1)

    @property
    def query_count(self) -> PrimExpr:
        return self.inputs[2].shape[-2]

    @property
    def key_count(self) -> PrimExpr:
        return self.inputs[3].shape[-2]

    def build(self) -> Stmt:
        x = self._scratch()
        return x.around(seq([
            self._query_blocks(None, lambda b: seq([
                self._find_sums(x, b), self._clear_queries(b)])),
            loop("key_block", (self.key_count + (KEYS - 1)) // KEYS,
                 lambda n: self._key_block(x, n * KEYS)),
        ]))

    def _scratch(self) -> _Scratch:
        depth, width = self.sizes
        rows = (self.query_count + (QUERIES - 1)) // QUERIES * QUERIES

        def make(name: str, *shape: PrimExpr | int) -> Buffer:
            sizes = tuple(const(n) if isinstance(n, int) else n for n in shape)
            return Buffer(name, sizes, float32)

        shapes: dict[str, tuple[PrimExpr | int, ...]] = {
            "queries_t": (depth, QUERIES), "scores_t": (KEYS, QUERIES), "keys": (KEYS, depth),
            "keys_t": (depth, KEYS), "values": (KEYS, width), "values_t": (width, KEYS),
            "queries": (QUERIES, depth), "arriving": (QUERIES, width), "weights": (QUERIES, KEYS),
            "spread": (QUERIES, KEYS), "d_key": (KEYS, depth), "d_value": (KEYS, width),
            "d_query": (QUERIES, depth)}
        shapes |= dict.fromkeys(("top", "total", "drift"), (self.group, rows))
        return _Scratch(**{name: make(name, *shape) for name, shape in shapes.items()})

    # Loops over blocks

    def _query_blocks(
        self, start: PrimExpr | None, body: Callable[[_Block], Stmt]
    ) -> Stmt:
        """``body`` for the blocks of queries that see some key from ``start`` on, or for all."""
        count = (self.query_count + (QUERIES - 1)) // QUERIES
        skipped: PrimExpr = const(0, int64)
        if self.offset is not None and start is not None:
            skipped = minimum(maximum(start - self.offset, 0) // QUERIES, count)

        def block(head: PrimExpr, number: PrimExpr) -> Stmt:
            first = Var("first", int64)
            inner = body(_Block(head, first, self._lead(head)))
            return LetStmt(first, (number + skipped) * QUERIES, inner)

        return loop("head", self.group, lambda head: loop(
            "query_block", count - skipped, lambda n: block(head, n)))

    def _lead(self, head: PrimExpr) -> tuple[PrimExpr, ...]:
        if not self.at:
            return ()
        *batch, shared = self.at
        return (*batch, shared * self.group + head)

    def _along(self, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """``body(n)`` for ``n`` below ``count``, vector by vector."""
        return loop("vector", count // self.lanes, lambda n: loop(
            "lane", self.lanes, lambda lane: body(n * self.lanes + lane), ForKind.VECTORIZED))

    # Copies

    def _pack(
        self, target: Buffer, source: Buffer, at: tuple[PrimExpr, ...], first: PrimExpr,
        count: int, limit: PrimExpr, scale: PrimExpr | None = None,
    ) -> Stmt:
        """``count`` rows of ``source`` from ``first`` on, scaled; zeros after ``limit``."""
        width, padded = (int_value(x.shape[-1]) or 0 for x in (source, target))
        zero = const(0, float32)

        def element(n: PrimExpr, d: PrimExpr) -> Stmt:
            # Rows beyond the end are read from the last one.
            value = source.load(*at, minimum(first + n, limit - 1), d)
            value = below(d, width if padded > width else None, value, 0.0)
            value = value if scale is None else value * scale
            return BufferStore(target, select(first + n < limit, value, zero), (n, d))

        return loop("row", count, lambda n: self._along(padded, lambda d: element(n, d)))

    def _unpack(
        self, source: Buffer, target: Buffer, at: tuple[PrimExpr, ...], first: PrimExpr,
        count: int, limit: PrimExpr,
    ) -> Stmt:
        return self._rows_of(target, first, count, limit, lambda n, d: BufferStore(
            target, source.load(n, d), (*at, first + n, d)))

    def _rows_of(
        self, target: Buffer, first: PrimExpr, count: int, limit: PrimExpr,
        body: Callable[[PrimExpr, PrimExpr], Stmt],
    ) -> Stmt:
        """``body(n, d)`` for the elements of ``target`` in ``count`` rows that exist."""
        width = int_value(target.shape[-1]) or 0

        def vector(n: PrimExpr, d: PrimExpr, lanes: int) -> Stmt:
            return loop("lane", lanes, lambda lane: body(n, d + lane), ForKind.VECTORIZED)

        return loop("row", minimum(limit - first, count), lambda n: in_tiles(
            width, self.lanes, lambda d, lanes: vector(n, d, lanes)))

    def _clear(self, target: Buffer) -> Stmt:
        rows, width = (int_value(n) or 0 for n in target.shape)
        return loop("row", rows, lambda n: self._along(
            width, lambda d: BufferStore(target, const(0, float32), (n, d))))

    def _clear_queries(self, b: _Block) -> Stmt:
        out = self.outputs[0]
        return self._rows_of(out, b.first, QUERIES, self.query_count, lambda n, d: BufferStore(
            out, const(0, float32), (*b.at, b.first + n, d)))

    def _transpose(self, source: Buffer, target: Buffer) -> Stmt:
        """``target[d, n] = source[n, d]``, in squares that are transposed in registers."""
        rows, width = (int_value(n) or 0 for n in source.shape)

        def square(n: PrimExpr, d: PrimExpr) -> Stmt:
            i, j = Var("d", int64), Var("n", int64)
            body = BufferStore(target, source.load(n + j, d + i), (d + i, n + j))
            inner = For(j, const(0), const(self.lanes), ForKind.VECTORIZED, body)
            outer = For(i, const(0), const(self.lanes), ForKind.UNROLLED, inner)
            return outer.replace(annotations={TRANSPOSE: 1})

        return loop("n", rows // self.lanes, lambda n: loop(
            "d", width // self.lanes, lambda d: square(n * self.lanes, d * self.lanes)))

    # The first pass: lanes along the queries, so that no reduction crosses lanes

    def _find_sums(self, x: _Scratch, b: _Block) -> Stmt:
        """The maximum and the sum of exponentials of each query of a block."""
        q, k = self.inputs[2], self.inputs[3]
        depth, scale = int_value(q.shape[-1]) or 0, const(self.attrs.scale, float32)

        def scores(start: PrimExpr) -> Stmt:
            # Keys beyond the end repeat the last one; their scores are masked.
            product = self.gemm.product(
                (KEYS, QUERIES, depth),
                lambda n, d: k.load(*self.at, minimum(start + n, self.key_count - 1), d),
                x.queries_t.load, x.scores_t, add=False)
            return seq([product, self._accumulate(x, start, b)])

        seen = self.key_count
        if self.offset is not None:
            last = b.first + (QUERIES - 1 + self.offset + 1)
            seen = maximum(minimum(seen, last), 0)
        return seq([
            self._pack(x.queries, q, b.at, b.first, QUERIES, self.query_count, scale),
            self._transpose(x.queries, x.queries_t),
            self._along(QUERIES, lambda n: seq([
                BufferStore(x.top, const(LOWEST, float32), (b.head, b.first + n)),
                BufferStore(x.total, const(0, float32), (b.head, b.first + n)),
            ])),
            loop("key_block", (seen + (KEYS - 1)) // KEYS, lambda n: scores(n * KEYS)),
            self._find_drift(x, b),
        ])

    def _accumulate(self, x: _Scratch, start: PrimExpr, b: _Block) -> Stmt:
        """Add a block of scores to maxima and sums, a vector of queries at a time."""
        def vector(first: PrimExpr) -> Stmt:
            best, total = (Buffer(n, (const(self.lanes),), float32, "local")
                           for n in ("best", "sum"))

            def lanes(body: Callable[[PrimExpr], Stmt]) -> Stmt:
                return loop("lane", self.lanes, body, ForKind.VECTORIZED)

            def at(lane: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
                return b.head, b.first + first + lane

            def mask(key: PrimExpr, lane: PrimExpr) -> Stmt:
                stored = x.scores_t.load(key, first + lane)
                score = self._masked(b, first + lane, start + key, stored)
                return seq([
                    BufferStore(x.scores_t, score, (key, first + lane)),
                    # A NaN score does not change the maximum; it reaches the sums as NaN.
                    BufferStore(best, select(stored > best.load(lane), stored, best.load(lane)),
                                (lane,)),
                ])

            return Allocate(best, Allocate(total, seq([
                lanes(lambda lane: BufferStore(best, x.top.load(*at(lane)), (lane,))),
                loop("key", KEYS, lambda key: lanes(lambda lane: mask(key, lane))),
                lanes(lambda lane: BufferStore(
                    total, x.total.load(*at(lane)) * exp(x.top.load(*at(lane)) - best.load(lane)),
                    (lane,))),
                loop("key", KEYS, lambda key: lanes(lambda lane: BufferStore(
                    total, total.load(lane) + exp(
                        x.scores_t.load(key, first + lane) - best.load(lane)), (lane,)))),
                lanes(lambda lane: seq([
                    BufferStore(x.top, best.load(lane), at(lane)),
                    BufferStore(x.total, total.load(lane), at(lane)),
                ])),
            ])))

        return loop("vector", QUERIES // self.lanes, lambda n: vector(n * self.lanes))

    def _find_drift(self, x: _Scratch, b: _Block) -> Stmt:
        """``drift[query] = sum of dy * y``, which is that of weights times their gradients."""
        dy, y = self.inputs[:2]
        width = int_value(y.shape[-1]) or 0

        def vector(first: PrimExpr) -> Stmt:
            acc = Buffer("acc", (const(self.lanes), const(self.lanes)), float32, "local")

            def square(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
                return unrolled(self.lanes, lambda row: loop(
                    "lane", self.lanes, lambda lane: body(row, lane), ForKind.VECTORIZED))

            def step(e: PrimExpr, count: int) -> Stmt:
                limit = None if count == self.lanes else width

                def element(row: PrimExpr, lane: PrimExpr) -> Stmt:
                    at = (*b.at, minimum(b.first + first + row, self.query_count - 1), e + lane)
                    product = below(e + lane, limit, dy.load(*at) * y.load(*at), 0.0)
                    return BufferStore(acc, acc.load(row, lane) + product, (row, lane))

                return square(element)

            stored = (b.head, Ramp(b.first + first, const(1), self.lanes))
            return Allocate(acc, seq([
                square(lambda row, lane: BufferStore(acc, const(0, float32), (row, lane))),
                in_tiles(width, self.lanes, step),
                with_row_sums(acc, self.lanes, lambda v: BufferStore(x.drift, v, stored)),
            ]))

        return loop("vector", QUERIES // self.lanes, lambda n: vector(n * self.lanes))

    # The second pass

    def _key_block(self, x: _Scratch, start: PrimExpr) -> Stmt:
        """The gradients of a block of keys and values, and its share of those of the queries."""
        k, v = self.inputs[3:5]
        return seq([
            self._pack(x.keys, k, self.at, start, KEYS, self.key_count),
            self._pack(x.values, v, self.at, start, KEYS, self.key_count),
            self._transpose(x.keys, x.keys_t), self._transpose(x.values, x.values_t),
            self._clear(x.d_key), self._clear(x.d_value),
            self._query_blocks(start, lambda b: self._block(x, start, b)),
            self._unpack(x.d_key, self.outputs[1], self.at, start, KEYS, self.key_count),
            self._unpack(x.d_value, self.outputs[2], self.at, start, KEYS, self.key_count),
        ])

    def _block(self, x: _Scratch, start: PrimExpr, b: _Block) -> Stmt:
        """The five products of a block of queries and a block of keys."""
        depth, width = self.sizes
        product, scale = self.gemm.product, const(self.attrs.scale, float32)
        return seq([
            self._pack(x.queries, self.inputs[2], b.at, b.first, QUERIES, self.query_count, scale),
            self._pack(x.arriving, self.inputs[0], b.at, b.first, QUERIES, self.query_count),
            product((QUERIES, KEYS, depth), x.queries.load, x.keys_t.load, x.weights, add=False),
            product((QUERIES, KEYS, width), x.arriving.load, x.values_t.load, x.spread, add=False),
            loop("row", QUERIES, lambda row: self._along(
                KEYS, lambda key: self._weigh(x, start, b, row, key))),
            product((KEYS, width, QUERIES), lambda m, n: x.weights.load(n, m), x.arriving.load,
                    x.d_value, add=True),
            product((KEYS, depth, QUERIES), lambda m, n: x.spread.load(n, m), x.queries.load,
                    x.d_key, add=True),
            product((QUERIES, depth, KEYS), x.spread.load, x.keys.load, x.d_query, add=False),
            self._add_to_queries(x, b),
        ])

    def _weigh(
        self, x: _Scratch, start: PrimExpr, b: _Block, row: PrimExpr, key: PrimExpr
    ) -> Stmt:
        """A score becomes a weight, and the gradient of the weight that of the score."""
        of_row, at = (b.head, b.first + row), (row, key)
        zero, total = const(0, float32), x.total.load(*of_row)
        score = self._masked(b, row, start + key, x.weights.load(*at))
        weight = exp(score - x.top.load(*of_row)) * (const(1, float32) / total)
        weight = defined(self.attrs, weight, total)
        # Rows of padding may have no visible key at all: their weights would be NaN.
        weight = select(b.first + row < self.query_count, weight, zero)
        gradient = x.weights.load(*at) * (x.spread.load(*at) - x.drift.load(*of_row))
        return seq([
            BufferStore(x.weights, weight, at),
            BufferStore(x.spread, select(self._visible(b, row, start + key), gradient, zero), at),
        ])

    def _add_to_queries(self, x: _Scratch, b: _Block) -> Stmt:
        out, scale = self.outputs[0], const(self.attrs.scale, float32)

        def element(n: PrimExpr, d: PrimExpr) -> Stmt:
            at = (*b.at, b.first + n, d)
            return BufferStore(out, out.load(*at) + x.d_query.load(n, d) * scale, at)

        return self._rows_of(out, b.first, QUERIES, self.query_count, element)

    # Masks

    def _mask_at(self, b: _Block, row: PrimExpr, key: PrimExpr) -> PrimExpr | None:
        """The element of the mask; of the last query for rows of padding."""
        if self.mask is None:
            return None
        query = minimum(b.first + row, self.query_count - 1)
        return broadcast_load(self.mask, (*b.at, query, minimum(key, self.key_count - 1)))

    def _visible(self, b: _Block, row: PrimExpr, key: PrimExpr) -> PrimExpr:
        """Whether the query of ``row`` sees ``key``."""
        mask = self._mask_at(b, row, key)
        conditions = [mask] if mask is not None and mask.dtype.is_bool else []
        if self.attrs.causal:
            conditions.append(key <= b.first + row + self.attrs.offset)
        return all_of(*conditions)

    def _masked(self, b: _Block, row: PrimExpr, key: PrimExpr, score: PrimExpr) -> PrimExpr:
        mask = self._mask_at(b, row, key)
        if mask is not None and not mask.dtype.is_bool:
            score = score + mask
        score = select(self._visible(b, row, key), score, const(self.attrs.unseen, float32))
        return select(key < self.key_count, score, const(float("-inf"), float32))
