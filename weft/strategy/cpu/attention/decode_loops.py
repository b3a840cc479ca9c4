"""The loops of decode attention: few queries, as in a decoding step; keys and values read once.

One task is a head of keys with all queries that share it. Lanes run along the contiguous axis of
the operand: along the depth for the scores, along the keys for the softmax, along the value width
for the sums. The dot products of ``lanes`` keys are reduced across lanes together, by a tree of
pairwise additions that ends with one key per lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from weft.ir import float32
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import LOWEST, broadcast_load, defined
from weft.strategy.cpu.attention.cost import AttentionShape
from weft.strategy.cpu.attention.fused_tile import in_tiles, loop
from weft.support.dataclass import dataclass
from weft.te import exp
from weft.tir import Allocate, BufferStore, ForKind, IfThenElse, LetStmt, Ramp, Stmt, Var, seq
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, PrimExpr, Shuffle, const, if_then_else, int_value, select
from weft.tir.row_major import element_count, unravel

VectorBody: TypeAlias = Callable[[PrimExpr, PrimExpr, "int | None"], Stmt]  # index, lane, limit
SUM_VECTORS = 4  # vectors of a value accumulated at a time: enough to hide the FMA latency
SUM_REGISTERS = 24  # accumulators of all queries together; the others hold operands


@dataclass(frozen=True, slots=True)
class DecodeLoops:
    """Builds the statement over buffers ``(q, k, v[, mask])`` and ``(out,)``.

    ``q``, ``k`` and ``v`` have any float dtype of 16 or 32 bits; the mask is as in ``FusedLoops``.
    """

    shape: AttentionShape
    attrs: AttentionAttrs
    lanes: int
    mask_hides: bool

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        q, k, v, *rest = inputs
        mask = rest[0] if rest else None

        def task(index: PrimExpr) -> Stmt:
            at = unravel(index, k.shape[:-2])
            return _DecodeTask(self.shape, self.attrs, self.lanes, q, k, v, mask, outputs[0], at,
                         self.mask_hides).build()

        return loop("task", element_count(k.shape[:-2]), task, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _DecodeTask:
    """The queries of all heads that share the keys with the leading indices ``at``."""

    shape: AttentionShape
    attrs: AttentionAttrs
    lanes: int
    q: Buffer
    k: Buffer
    v: Buffer
    mask: Buffer | None
    out: Buffer
    at: tuple[PrimExpr, ...]
    mask_hides: bool

    @property
    def group(self) -> int:
        if not self.at:
            return 1
        heads, shared = int_value(self.q.shape[-3]), int_value(self.k.shape[-3])
        return (heads or 1) // (shared or 1)

    @property
    def count(self) -> int:
        return self.group * self.shape.queries

    def query(self, row: PrimExpr) -> tuple[PrimExpr, ...]:
        """The indices of query ``row`` of the group: batch, head, query."""
        if not self.at:
            return (row,)
        *batch, head = self.at
        queries = self.shape.queries
        return (*batch, head * self.group + row // queries, row % queries)

    def build(self) -> Stmt:
        """The statement of one task: pack queries, scores, softmax, weighted sums."""
        sizes = self.shape.depth, self.shape.keys
        depth, keys = (-(-n // self.lanes) * self.lanes for n in sizes)
        rows = const(self.count)
        queries = Buffer("queries", (rows, const(depth)), float32)
        scores = Buffer("scores", (rows, const(keys)), float32)
        total = Buffer("total", (rows,), float32)
        # Keys outside, queries inside: a block of keys is read once for all queries of the group.
        body = seq([
            loop("row", self.count, lambda row: self._pack(queries, row)),
            in_tiles(self.shape.keys, self.lanes, lambda start, count: loop(
                "row", self.count, lambda row: self._scores(queries, scores, row, start, count))),
            loop("row", self.count, lambda row: self._softmax(scores, total, row)),
            in_tiles(self.shape.width, self._sum_vectors() * self.lanes,
                     lambda start, width: self._sums(scores, total, start, width)),
        ])
        for buffer in (queries, scores, total):
            body = Allocate(buffer, body)
        return body

    def _along(self, extent: int, body: VectorBody) -> Stmt:
        """``body(index, lane, limit)`` by vectors; ``limit`` is the extent in a partial one."""
        def vector(start: PrimExpr, count: int) -> Stmt:
            limit = None if count == self.lanes else extent
            return self._lanes(lambda lane: body(start + lane, lane, limit))

        return in_tiles(extent, self.lanes, vector)

    def _lanes(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def _pack(self, queries: Buffer, row: PrimExpr) -> Stmt:
        """Store one query scaled, padded with zeros to whole vectors."""
        scale = const(self.attrs.scale, float32)

        def element(d: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            del lane
            value = self.q.load(*self.query(row), d).astype(float32) * scale
            return BufferStore(queries, below(d, limit, value, 0.0), (row, d))

        return self._along(self.shape.depth, element)

    def _scores(self, queries: Buffer, scores: Buffer, row: PrimExpr, start: PrimExpr,
                count: int) -> Stmt:
        """The scores of one vector of keys, of which the first ``count`` exist."""
        # One accumulator per key: independent chains, and a square whose rows are summed at once.
        # Rows beyond ``count`` stay zero; ``_softmax`` masks these keys.
        acc = Buffer("acc", (const(self.lanes), const(self.lanes)), float32, "local")

        def products(first: PrimExpr, width: int) -> Stmt:
            limit = None if width == self.lanes else self.shape.depth

            def step(n: PrimExpr, lane: PrimExpr) -> Stmt:
                d = first + lane
                key = self.k.load(*self.at, start + n, d).astype(float32)
                # The zeros of the padded query do not suffice: what follows the key may be
                # infinite, and nothing follows the last one.
                value = queries.load(row, d) * below(d, limit, key, 0.0)
                return BufferStore(acc, acc.load(n, lane) + value, (n, lane))

            return unrolled(count, lambda n: self._lanes(lambda lane: step(n, lane)))

        stored = (row, Ramp(start, const(1), self.lanes))
        return Allocate(acc, seq([
            unrolled(self.lanes, lambda n: self._lanes(
                lambda lane: BufferStore(acc, const(0, float32), (n, lane)))),
            in_tiles(self.shape.depth, self.lanes, products),
            with_row_sums(acc, self.lanes, lambda sums: BufferStore(scores, sums, stored)),
        ]))

    def _softmax(self, scores: Buffer, total: Buffer, row: PrimExpr) -> Stmt:
        """Replace scores by exp(score - maximum); ``total`` is the sum of the exponentials."""
        best = Buffer("best", (const(self.lanes),), float32, "local")
        partial = Buffer("part", (const(self.lanes),), float32, "local")
        top = Buffer("top", (const(1),), float32)

        def largest(n: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            score, so_far = scores.load(row, n), best.load(lane)
            masked = below(n, limit, self._masked(score, row, n), -math.inf)
            return seq([
                BufferStore(scores, masked, (row, n)),
                BufferStore(best, select(score > so_far, score, so_far), (lane,)),
            ])

        def power(n: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            del limit  # lanes beyond the last key hold exp(-inf) = 0
            return seq([
                BufferStore(scores, exp(scores.load(row, n) - top.load(0)), (row, n)),
                BufferStore(partial, partial.load(lane) + scores.load(row, n), (lane,)),
            ])

        def set_all(target: Buffer, value: float) -> Stmt:
            return self._lanes(lambda lane: BufferStore(target, const(value, float32), (lane,)))

        keys = self.shape.keys
        return Allocate(top, Allocate(best, Allocate(partial, seq([
            set_all(best, LOWEST), self._along(keys, largest),
            self._folded(best, top, const(0), lambda a, b: select(b > a, b, a)),
            set_all(partial, 0.0), self._along(keys, power),
            self._folded(partial, total, row, lambda a, b: a + b),
        ]))))

    def _folded(self, vector: Buffer, target: Buffer, index: PrimExpr,
                combine: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """Reduce the lanes of a register, one after the other, into ``target[index]``."""
        # In memory: a loop cannot index the lanes of a register.
        spread = Buffer("spread", (const(self.lanes),), float32)
        current = target.load(index)
        return Allocate(spread, seq([
            self._lanes(lambda lane: BufferStore(spread, vector.load(lane), (lane,))),
            BufferStore(target, spread.load(0), (index,)),
            loop("lane", self.lanes - 1, lambda lane: BufferStore(
                target, combine(current, spread.load(lane + 1)), (index,))),
        ]))

    def _masked(self, score: PrimExpr, row: PrimExpr, n: PrimExpr) -> PrimExpr:
        unseen, query = const(self.attrs.unseen, float32), self.query(row)
        if self.mask is not None:
            mask = broadcast_load(self.mask, (*query, n))
            hidden = mask < const(0, float32)
            score = select(hidden, unseen, score) if self.mask_hides else score + mask
        if self.attrs.causal:
            score = select(n <= query[-1] + self.attrs.offset, score, unseen)
        return score

    def _sum_vectors(self) -> int:
        """Vectors of a value that are accumulated at a time, for all queries."""
        needed = -(-self.shape.width // self.lanes)
        return max(1, min(needed, SUM_VECTORS, SUM_REGISTERS // self.count))

    def _sums(self, scores: Buffer, total: Buffer, start: PrimExpr, width: int) -> Stmt:
        """Store ``width`` elements of the result from ``start`` on: sums of weighted values."""
        lanes = self.lanes
        vectors = -(-width // lanes)
        acc = Buffer("acc", (const(self.count), const(vectors), const(lanes)), float32, "local")
        limit = self.shape.width if width % lanes else None

        def tile(body: Callable[[tuple[PrimExpr, ...], PrimExpr], Stmt]) -> Stmt:
            return unrolled(self.count, lambda row: unrolled(vectors, lambda n: self._lanes(
                lambda lane: body((row, n, lane), start + n * lanes + lane))))

        def step(n: PrimExpr) -> Stmt:
            def element(i: tuple[PrimExpr, ...], e: PrimExpr) -> Stmt:
                value = self.v.load(*self.at, n, e).astype(float32)
                weighted = scores.load(i[0], n) * below(e, limit, value, 0.0)
                return BufferStore(acc, acc.load(*i) + weighted, i)

            return tile(element)

        def write(i: tuple[PrimExpr, ...], e: PrimExpr) -> Stmt:
            sum_of_weights = total.load(i[0])
            value = defined(self.attrs, acc.load(*i) / sum_of_weights, sum_of_weights)
            store = BufferStore(self.out, value.astype(self.out.dtype), (*self.query(i[0]), e))
            return store if limit is None else IfThenElse(e < limit, store)

        return Allocate(acc, seq([
            tile(lambda i, _: BufferStore(acc, const(0, float32), i)),
            # The accumulators stay in registers over all keys, and a value is loaded once for all
            # queries.
            loop("key", self.shape.keys, step), tile(write),
        ]))


def unrolled(extent: int, body: Callable[[Var], Stmt]) -> Stmt:
    return loop("n", extent, body, ForKind.UNROLLED)


def below(index: PrimExpr, limit: int | None, value: PrimExpr, other: float) -> PrimExpr:
    """``value`` if ``index < limit``, else ``other``; ``value`` is not evaluated otherwise."""
    return value if limit is None else if_then_else(index < limit, value, const(other, float32))


def with_row_sums(
    square: Buffer, lanes: int, body: Callable[[PrimExpr], Stmt]
) -> Stmt:
    """``body(vector)``, where lane ``i`` of the vector is the sum of row ``i`` of ``square``.

    A tree: each level adds even and odd lanes of two vectors into one, which halves both the
    number of vectors and the number of lanes that belong to one row.
    """
    values: list[tuple[Var, PrimExpr]] = []
    even, odd = tuple(range(0, 2 * lanes, 2)), tuple(range(1, 2 * lanes, 2))

    def named(value: PrimExpr) -> Var:
        values.append((Var("part", value.dtype), value))
        return values[-1][0]

    level = [named(BufferLoad(square, (const(row), Ramp(const(0), const(1), lanes)), None))
             for row in range(lanes)]
    while len(level) > 1:
        level = [named(Shuffle((a, b), even) + Shuffle((a, b), odd))
                 for a, b in zip(level[::2], level[1::2], strict=True)]
    result = body(level[0])
    for var, value in reversed(values):
        result = LetStmt(var, value, result)
    return result
