"""Attention of a few queries, such as the one of a decoding step: keys and values are read once.

One task is a head of keys with all queries that share it. Lanes run along what memory holds side
by side: along the depth for the scores, along the keys for the softmax, along the values for the
sums. The scores of as many keys as a vector has lanes are added up across lanes together, pair by
pair, in a tree that ends with one key in each lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from weft.ir.dtype import float32
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.cpu.attention.cost import AttentionSize
from weft.strategy.cpu.attention.tile import LOWEST, broadcast_load, defined, in_tiles, loop
from weft.strategy.cpu.elementwise.flat_rows import row_count, unravel
from weft.te import exp
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    BufferLoad,
    PrimExpr,
    Ramp,
    Shuffle,
    Var,
    const,
    if_then_else,
    int_value,
    select,
)
from weft.tir.stmt import Allocate, BufferStore, ForKind, IfThenElse, LetStmt, Stmt, seq

Vector: TypeAlias = Callable[[PrimExpr, PrimExpr, "int | None"], Stmt]  # index, lane, limit
SUM_VECTORS = 4  # vectors of a value that are summed at a time: enough to hide the latency
SUM_REGISTERS = 24


@dataclass(frozen=True, slots=True)
class RowLoops:
    """Builds the program over ``(q, k, v[, mask])`` and ``(out,)``; the mask as ``AttentionLoops``
    has it.
    """

    size: AttentionSize
    attrs: AttentionAttrs
    lanes: int
    mask_hides: bool

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        q, k, v, *rest = inputs
        mask = rest[0] if rest else None

        def task(index: PrimExpr) -> Stmt:
            at = tuple(unravel(index, k.shape[:-2]))
            return _Rows(self.size, self.attrs, self.lanes, q, k, v, mask, outputs[0], at,
                         self.mask_hides).build()

        return loop("task", row_count(k.shape[:-2]), task, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The queries of the heads that share the keys at ``at``."""

    size: AttentionSize
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
        return self.group * self.size.queries

    def query(self, row: PrimExpr) -> tuple[PrimExpr, ...]:
        """The leading indices of a query, its own last."""
        if not self.at:
            return (row,)
        *batch, head = self.at
        queries = self.size.queries
        return (*batch, head * self.group + row // queries, row % queries)

    def build(self) -> Stmt:
        depth, keys = (-(-n // self.lanes) * self.lanes for n in (self.size.depth, self.size.keys))
        rows = const(self.count)
        queries = Buffer("queries", (rows, const(depth)), float32)
        scores = Buffer("scores", (rows, const(keys)), float32)
        total = Buffer("total", (rows,), float32)
        body = seq([
            loop("row", self.count, lambda row: self._pack(queries, row)),
            in_tiles(self.size.keys, self.lanes, lambda start, count: loop(
                "row", self.count, lambda row: self._scores(queries, scores, row, start, count))),
            loop("row", self.count, lambda row: self._softmax(scores, total, row)),
            in_tiles(self.size.width, self._sum_vectors() * self.lanes,
                     lambda start, width: self._sums(scores, total, start, width)),
        ])
        for buffer in (queries, scores, total):
            body = Allocate(buffer, body)
        return body

    def _along(self, extent: int, body: Vector) -> Stmt:
        """``body`` for vectors of indices; of the last one not all may be there."""
        def vector(start: PrimExpr, count: int) -> Stmt:
            limit = None if count == self.lanes else extent
            return self._lanes(lambda lane: body(start + lane, lane, limit))

        return in_tiles(extent, self.lanes, vector)

    def _lanes(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def _pack(self, queries: Buffer, row: PrimExpr) -> Stmt:
        """A query, scaled; zero beyond the depth."""
        scale = const(self.attrs.scale, float32)

        def element(d: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            del lane
            value = self.q.load(*self.query(row), d).astype(float32) * scale
            return BufferStore(queries, _below(d, limit, value, 0.0), (row, d))

        return self._along(self.size.depth, element)

    def _scores(self, queries: Buffer, scores: Buffer, row: PrimExpr, start: PrimExpr,
                count: int) -> Stmt:
        """Scores of a vector of keys, ``count`` of which are there."""
        acc = Buffer("acc", (const(self.lanes), const(self.lanes)), float32, "local")

        def products(first: PrimExpr, width: int) -> Stmt:
            limit = None if width == self.lanes else self.size.depth

            def step(n: PrimExpr, lane: PrimExpr) -> Stmt:
                d = first + lane
                key = self.k.load(*self.at, start + n, d).astype(float32)
                value = queries.load(row, d) * _below(d, limit, key, 0.0)
                return BufferStore(acc, acc.load(n, lane) + value, (n, lane))

            return _unrolled(count, lambda n: self._lanes(lambda lane: step(n, lane)))

        place = (row, Ramp(start, const(1), self.lanes))
        return Allocate(acc, seq([
            _unrolled(self.lanes, lambda n: self._lanes(
                lambda lane: BufferStore(acc, const(0, float32), (n, lane)))),
            in_tiles(self.size.depth, self.lanes, products),
            _with_sums_of_rows(acc, self.lanes, lambda sums: BufferStore(scores, sums, place)),
        ]))

    def _softmax(self, scores: Buffer, total: Buffer, row: PrimExpr) -> Stmt:
        """Scores become exponentials relative to the largest; ``total`` is their sum."""
        best = Buffer("best", (const(self.lanes),), float32, "local")
        part = Buffer("part", (const(self.lanes),), float32, "local")
        top = Buffer("top", (const(1),), float32)

        def largest(n: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            score, so_far = scores.load(row, n), best.load(lane)
            masked = _below(n, limit, self._masked(score, row, n), -math.inf)
            return seq([
                BufferStore(scores, masked, (row, n)),
                BufferStore(best, select(score > so_far, score, so_far), (lane,)),
            ])

        def power(n: PrimExpr, lane: PrimExpr, limit: int | None) -> Stmt:
            del limit  # beyond the keys there are zeros
            return seq([
                BufferStore(scores, exp(scores.load(row, n) - top.load(0)), (row, n)),
                BufferStore(part, part.load(lane) + scores.load(row, n), (lane,)),
            ])

        def set_all(target: Buffer, value: float) -> Stmt:
            return self._lanes(lambda lane: BufferStore(target, const(value, float32), (lane,)))

        keys = self.size.keys
        return Allocate(top, Allocate(best, Allocate(part, seq([
            set_all(best, LOWEST), self._along(keys, largest),
            self._folded(best, top, const(0), lambda a, b: select(b > a, b, a)),
            set_all(part, 0.0), self._along(keys, power),
            self._folded(part, total, row, lambda a, b: a + b),
        ]))))

    def _folded(self, vector: Buffer, target: Buffer, place: PrimExpr,
                combine: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """``target[place]`` is what the lanes of a register combine to, one after the other."""
        spread = Buffer("spread", (const(self.lanes),), float32)
        here = target.load(place)
        return Allocate(spread, seq([
            self._lanes(lambda lane: BufferStore(spread, vector.load(lane), (lane,))),
            BufferStore(target, spread.load(0), (place,)),
            loop("lane", self.lanes - 1, lambda lane: BufferStore(
                target, combine(here, spread.load(lane + 1)), (place,))),
        ]))

    def _masked(self, score: PrimExpr, row: PrimExpr, n: PrimExpr) -> PrimExpr:
        unseen, query = const(self.attrs.unseen, float32), self.query(row)
        if self.mask is not None:
            here = broadcast_load(self.mask, (*query, n))
            hidden = here < const(0, float32)
            score = select(hidden, unseen, score) if self.mask_hides else score + here
        if self.attrs.causal:
            score = select(n <= query[-1] + self.attrs.offset, score, unseen)
        return score

    def _sum_vectors(self) -> int:
        """Vectors of a value that are summed at a time, for all queries."""
        there = -(-self.size.width // self.lanes)
        return max(1, min(there, SUM_VECTORS, SUM_REGISTERS // self.count))

    def _sums(self, scores: Buffer, total: Buffer, start: PrimExpr, width: int) -> Stmt:
        """The weighted sums of ``width`` elements of the values, written to the result."""
        lanes = self.lanes
        vectors = -(-width // lanes)
        acc = Buffer("acc", (const(self.count), const(vectors), const(lanes)), float32, "local")
        limit = self.size.width if width % lanes else None

        def tile(body: Callable[[tuple[PrimExpr, ...], PrimExpr], Stmt]) -> Stmt:
            return _unrolled(self.count, lambda row: _unrolled(vectors, lambda n: self._lanes(
                lambda lane: body((row, n, lane), start + n * lanes + lane))))

        def step(n: PrimExpr) -> Stmt:
            def element(i: tuple[PrimExpr, ...], e: PrimExpr) -> Stmt:
                value = self.v.load(*self.at, n, e).astype(float32)
                weighted = scores.load(i[0], n) * _below(e, limit, value, 0.0)
                return BufferStore(acc, acc.load(*i) + weighted, i)

            return tile(element)

        def write(i: tuple[PrimExpr, ...], e: PrimExpr) -> Stmt:
            sum_of_weights = total.load(i[0])
            value = defined(self.attrs, acc.load(*i) / sum_of_weights, sum_of_weights)
            store = BufferStore(self.out, value.astype(self.out.dtype), (*self.query(i[0]), e))
            return store if limit is None else IfThenElse(e < limit, store)

        return Allocate(acc, seq([
            tile(lambda i, _: BufferStore(acc, const(0, float32), i)),
            loop("key", self.size.keys, step), tile(write),
        ]))


def _unrolled(extent: int, body: Callable[[Var], Stmt]) -> Stmt:
    return loop("n", extent, body, ForKind.UNROLLED)


def _below(index: PrimExpr, limit: int | None, value: PrimExpr, other: float) -> PrimExpr:
    """``value`` for an index below ``limit``, and read there alone."""
    return value if limit is None else if_then_else(index < limit, value, const(other, float32))


def _with_sums_of_rows(
    square: Buffer, lanes: int, body: Callable[[PrimExpr], Stmt]
) -> Stmt:
    """``body(vector)``, lane ``i`` of which is the sum of row ``i`` of registers.

    Neighbouring lanes of two vectors are added into one, and so on: each step halves both the
    vectors and what is left to add of a row.
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
