"""One tile of queries of fused attention: what it reads, and what it keeps in the nearest cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from weft.ir.dtype import DType, float32, int32, int64
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.cpu.attention.cost import AttentionPlan
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, const, int_value, minimum, select
from weft.tir.stmt import BufferStore, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.transform.transpose_tile import ANNOTATION as TRANSPOSE

LaneBody = Callable[[PrimExpr], Stmt]
Element = Callable[[PrimExpr, PrimExpr], Stmt]
Place: TypeAlias = tuple[PrimExpr, PrimExpr, PrimExpr]  # row, vector, lane of a register tile
RegisterBody = Callable[[Place, PrimExpr], Stmt]

# Where maxima start: below every score but minus infinity, and still a number to subtract.
LOWEST = float(np.finfo(np.float32).min)
MIN_TURNED = 4  # rows of less than a square that are transposed in registers


def defined(attrs: AttentionAttrs, value: PrimExpr, total: PrimExpr) -> PrimExpr:
    """A result, or zero for a query without a softmax, where the attributes want that.

    The sum of its exponentials is zero where all its scores were minus infinity, at least one
    where there is a softmax, and NaN elsewhere.
    """
    zero = const(0, float32)
    if attrs.undefined == "zero":
        return select(total > zero, value, zero)
    if attrs.undefined == "zero_if_hidden":
        return select(total.equal(zero), zero, value)
    return value


def broadcast_load(x: Buffer, index: Sequence[PrimExpr]) -> PrimExpr:
    """The element of ``x``, which broadcasts to a shape, for an index into that shape."""
    own = index[len(index) - x.ndim:]
    return x.load(*(const(0) if int_value(size) == 1 else i
                    for size, i in zip(x.shape, own, strict=True)))


def loop(
    name: str, extent: PrimExpr | int, body: Callable[[Var], Stmt], kind: ForKind = ForKind.SERIAL
) -> Stmt:
    """``for name in range(extent): body(name)``"""
    var = Var(name, int64)
    return For(var, const(0), const(extent) if isinstance(extent, int) else extent, kind,
               body(var))


def in_tiles(count: int, height: int, body: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    """``body(first row, rows)`` for tiles of ``height`` rows, and for the rest."""
    full, rest = divmod(count, height)
    parts: list[Stmt] = []
    if full:
        parts.append(loop("tile", full, lambda t: body(t * height, height)))
    if rest:
        parts.append(body(const(full * height), rest))
    return seq(parts)


@dataclass(frozen=True, slots=True)
class Scratch:
    """What a tile keeps in the first-level cache; the last axis of each has one lane a query."""

    queries: Buffer  # [depth, tile], scaled
    scores: Buffer  # [block, tile], then their exponentials
    sums: Buffer  # [width, tile]
    mask: Buffer  # [block, tile]
    top: Buffer  # the largest score so far
    factor: Buffer  # the largest score before this block, then what it does to earlier sums
    total: Buffer  # the sum of exponentials
    last: Buffer  # the last key that each query sees

    @staticmethod
    def of(plan: AttentionPlan) -> Scratch:
        def lanes(name: str, *rows: int, dtype: DType = float32) -> Buffer:
            return Buffer(name, tuple(const(n) for n in (*rows, plan.tile)), dtype)

        return Scratch(
            lanes("q_tile", plan.size.depth), lanes("scores", plan.block),
            lanes("sums", plan.size.width), lanes("mask_tile", plan.block), lanes("top"),
            lanes("factor"), lanes("total"), lanes("last", dtype=int32),
        )

    def buffers(self) -> Iterator[Buffer]:
        yield from (getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the queries of one head, whose leading indices are ``at``, from ``first`` on.

    ``count`` is how many it has; ``None`` for those of ``plan``, and fewer at the end. ``mask`` is
    float32: numbers to add, or, with ``mask_hides``, negative where a key is not seen.
    """

    plan: AttentionPlan
    attrs: AttentionAttrs
    q: Buffer
    k: Buffer
    v: Buffer
    mask: Buffer | None
    out: Buffer
    at: tuple[PrimExpr, ...]
    first: PrimExpr
    count: int | None
    mask_hides: bool
    x: Scratch

    @property
    def is_whole(self) -> bool:
        """Whether it is known that every lane has a query."""
        if self.count is None:
            return self.plan.size.queries % self.plan.tile == 0
        return self.count == self.plan.tile

    @property
    def turns_mask(self) -> bool:
        """Whether the mask differs between queries, so that it has to be transposed."""
        return (self.mask is not None and self.mask.ndim > 1 and self.plan.size.queries > 1
                and int_value(self.mask.shape[-2]) != 1)

    def key(self, row: PrimExpr, d: PrimExpr) -> PrimExpr:
        return self.k.load(*self._shared(self.k), row, d)

    def value(self, row: PrimExpr, e: PrimExpr) -> PrimExpr:
        return self.v.load(*self._shared(self.v), row, e)

    def mask_at(self, query: PrimExpr, key: PrimExpr) -> PrimExpr:
        """What the mask, which broadcasts, has for a query and a key."""
        if self.mask is None:
            return const(0, float32)
        return broadcast_load(self.mask, (*self.at, query, key))

    def _shared(self, x: Buffer) -> Sequence[PrimExpr]:
        """The leading indices of keys or values: one head serves a group of heads."""
        if not self.at:
            return ()
        *batch, head = self.at
        group = (int_value(self.q.shape[-3]) or 1) // (int_value(x.shape[-3]) or 1)
        return (*batch, head // group)

    def turn(self, extent: int, element: Element, *, into_lanes: bool) -> Stmt:
        """``element(n, query)`` for ``extent`` of the one and the queries that there are.

        Memory is read along one of the two axes and written along the other: along the queries
        where it is ``into_lanes`` of the tile.
        """
        lanes, queries = self.plan.lanes, self.plan.size.queries

        def strip(first: PrimExpr, count: int) -> Stmt:
            return in_tiles(extent, lanes, lambda n, height: _turned(
                (n, height), (first, count), lanes, element, into_lanes=into_lanes))

        if self.is_whole or self.count is not None:
            return in_tiles(self.count or self.plan.tile, lanes, strip)
        whole = minimum((queries - self.first) // lanes, self.plan.vectors)
        rest, last = queries % lanes, queries % self.plan.tile
        return seq([
            loop("vector", whole, lambda vector: strip(vector * lanes, lanes)),
            IfThenElse(self.first.equal(queries - last), strip(const(last - rest), rest))
            if rest else None,
        ])

    def lanes(self, body: LaneBody) -> Stmt:
        """``body`` for all queries of the tile, a vector after the other."""
        return self.registers(1, lambda _, j: body(j))

    def registers(self, rows: int, body: RegisterBody) -> Stmt:
        """``body((row, vector, lane), query)`` written out, vectors inside rows."""
        lanes = self.plan.lanes

        def vector(r: PrimExpr, n: PrimExpr) -> Stmt:
            return loop("lane", lanes, lambda lane: body((r, n, lane), n * lanes + lane),
                        ForKind.VECTORIZED)

        return loop("row", rows, lambda r: loop(
            "vector", self.plan.vectors, lambda n: vector(r, n), ForKind.UNROLLED),
            ForKind.UNROLLED)

    def register_tile(self, name: str, rows: int) -> Buffer:
        shape = (const(rows), const(self.plan.vectors), const(self.plan.lanes))
        return Buffer(name, shape, float32, "local")

    def fill(self, target: Buffer, rows: int, value: PrimExpr) -> Stmt:
        return loop("row", rows, lambda r: self.lanes(
            lambda j: BufferStore(target, value, (r, j))))


def _turned(
    rows: tuple[PrimExpr, int], queries: tuple[PrimExpr, int], lanes: int, element: Element, *,
    into_lanes: bool,
) -> Stmt:
    """``element`` for a square, transposed in registers; what is left of one by strides."""
    (row, height), (query, width) = rows, queries
    n, j = Var("n", int64), Var("query", int64)
    body = element(row + n, query + j)
    over_rows, over_queries = (n, height), (j, width)
    if width == lanes and height >= MIN_TURNED and height & (height - 1) == 0:
        outer, inner = (over_rows, over_queries) if into_lanes else (over_queries, over_rows)
        turned = _for(*outer, _for(*inner, body, ForKind.VECTORIZED), ForKind.UNROLLED)
        return turned.replace(annotations={TRANSPOSE: 1})
    inner, outer = (over_queries, over_rows) if width == lanes else (over_rows, over_queries)
    return _for(*outer, _for(*inner, body, ForKind.VECTORIZED))


def _for(var: Var, extent: int, body: Stmt, kind: ForKind = ForKind.SERIAL) -> For:
    return For(var, const(0), const(extent), kind, body)
