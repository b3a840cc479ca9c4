"""One tile of queries of fused attention: its operands, and its scratch buffers in L1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import TypeAlias

from weft.ir import DType, float32, int32, int64
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import broadcast_load
from weft.strategy.cpu.attention.cost import TilePlan
from weft.support.dataclass import dataclass
from weft.tir import Buffer, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.expr import PrimExpr, Var, const, int_value, minimum
from weft.tir.transform.transpose_tile import ANNOTATION as TRANSPOSE

LaneBody = Callable[[PrimExpr], Stmt]
Element = Callable[[PrimExpr, PrimExpr], Stmt]
TileIndex: TypeAlias = tuple[PrimExpr, PrimExpr, PrimExpr]  # row, vector, lane of a register tile
RegisterBody = Callable[[TileIndex, PrimExpr], Stmt]

MIN_TRANSPOSED = 4  # rows from which on a non-square tile is transposed in registers


def loop(
    name: str, extent: PrimExpr | int, body: Callable[[Var], Stmt], kind: ForKind = ForKind.SERIAL
) -> Stmt:
    """``for name in range(extent): body(name)``"""
    var = Var(name, int64)
    return For(var, const(0), const(extent) if isinstance(extent, int) else extent, kind,
               body(var))


def in_tiles(count: int, height: int, body: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    """``body(first row, rows)`` for full tiles of ``height`` rows and for the tail."""
    full, rest = divmod(count, height)
    tiles: list[Stmt] = []
    if full:
        tiles.append(loop("tile", full, lambda t: body(t * height, height)))
    if rest:
        tiles.append(body(const(full * height), rest))
    return seq(tiles)


@dataclass(frozen=True, slots=True)
class Scratch:
    """The buffers of a tile, which fit in L1; their last axis runs over the queries."""

    queries: Buffer  # [depth, tile], scaled
    scores: Buffer  # [block, tile], then their exponentials
    sums: Buffer  # [width, tile]
    mask: Buffer  # [block, tile]
    top: Buffer  # the maximum score so far
    factor: Buffer  # the maximum before this block, then the scale factor of earlier sums
    total: Buffer  # the sum of exponentials
    last: Buffer  # the last key that each query sees

    @staticmethod
    def of(plan: TilePlan) -> Scratch:
        """Buffers of the sizes of ``plan``."""
        def lanes(name: str, *rows: int, dtype: DType = float32) -> Buffer:
            return Buffer(name, tuple(const(n) for n in (*rows, plan.tile)), dtype)

        return Scratch(
            lanes("q_tile", plan.shape.depth), lanes("scores", plan.block),
            lanes("sums", plan.shape.width), lanes("mask_tile", plan.block), lanes("top"),
            lanes("factor"), lanes("total"), lanes("last", dtype=int32),
        )

    def buffers(self) -> Iterator[Buffer]:
        yield from (getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of queries from ``first`` on of one head, whose leading indices are ``at``.

    ``count`` is the number of queries; ``None``: as many as ``plan`` says, fewer in the last tile.
    ``mask`` is float32: added to the scores, or with ``mask_hides`` negative for hidden keys.
    """

    plan: TilePlan
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
        """Whether every lane is known to hold a query."""
        if self.count is None:
            return self.plan.shape.queries % self.plan.tile == 0
        return self.count == self.plan.tile

    @property
    def transposes_mask(self) -> bool:
        """Whether the mask differs between queries, so that it has to be transposed."""
        return (self.mask is not None and self.mask.ndim > 1 and self.plan.shape.queries > 1
                and int_value(self.mask.shape[-2]) != 1)

    def key(self, row: PrimExpr, d: PrimExpr) -> PrimExpr:
        return self.k.load(*self._shared(self.k), row, d)

    def value(self, row: PrimExpr, e: PrimExpr) -> PrimExpr:
        return self.v.load(*self._shared(self.v), row, e)

    def mask_at(self, query: PrimExpr, key: PrimExpr) -> PrimExpr:
        """The element of the broadcast mask for a query and a key."""
        if self.mask is None:
            return const(0, float32)
        return broadcast_load(self.mask, (*self.at, query, key))

    def _shared(self, x: Buffer) -> Sequence[PrimExpr]:
        """The leading indices of keys or values, which a group of query heads shares."""
        if not self.at:
            return ()
        *batch, head = self.at
        group = (int_value(self.q.shape[-3]) or 1) // (int_value(x.shape[-3]) or 1)
        return (*batch, head // group)

    def transpose(self, extent: int, element: Element, *, into_lanes: bool) -> Stmt:
        """A transposed copy: ``element(n, query)`` for ``n`` below ``extent`` and all queries.

        One of the two axes is contiguous in the source, the other in the destination. With
        ``into_lanes`` the destination is the tile, where queries are contiguous; otherwise the
        tile is the source.
        """
        lanes, queries = self.plan.lanes, self.plan.shape.queries

        def column_block(first: PrimExpr, count: int) -> Stmt:
            return in_tiles(extent, lanes, lambda n, height: _transposed(
                (n, height), (first, count), lanes, element, into_lanes=into_lanes))

        if self.is_whole or self.count is not None:
            return in_tiles(self.count or self.plan.tile, lanes, column_block)
        # One copy of the code serves whole and partial tiles. The vector in which the queries end
        # is in the last tile alone, and its width is known.
        whole = minimum((queries - self.first) // lanes, self.plan.vectors)
        rest, last = queries % lanes, queries % self.plan.tile
        return seq([
            loop("vector", whole, lambda vector: column_block(vector * lanes, lanes)),
            IfThenElse(self.first.equal(queries - last), column_block(const(last - rest), rest))
            if rest else None,
        ])

    def lanes(self, body: LaneBody) -> Stmt:
        """``body(query)`` for all queries of the tile, vector by vector."""
        return self.registers(1, lambda _, j: body(j))

    def registers(self, rows: int, body: RegisterBody) -> Stmt:
        """``body((row, vector, lane), query)``, unrolled over rows and the vectors inside them."""
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


def _transposed(
    rows: tuple[PrimExpr, int], queries: tuple[PrimExpr, int], lanes: int, element: Element, *,
    into_lanes: bool,
) -> Stmt:
    """``element`` for one square, transposed in registers; a small remainder by strided access."""
    (row, height), (query, width) = rows, queries
    n, j = Var("n", int64), Var("query", int64)
    body = element(row + n, query + j)
    over_rows, over_queries = (n, height), (j, width)
    # The network of shuffles takes powers of two.
    if width == lanes and height >= MIN_TRANSPOSED and height & (height - 1) == 0:
        outer, inner = (over_rows, over_queries) if into_lanes else (over_queries, over_rows)
        square = _for(*outer, _for(*inner, body, ForKind.VECTORIZED), ForKind.UNROLLED)
        return square.replace(annotations={TRANSPOSE: 1})
    inner, outer = (over_queries, over_rows) if width == lanes else (over_rows, over_queries)
    return _for(*outer, _for(*inner, body, ForKind.VECTORIZED))


def _for(var: Var, extent: int, body: Stmt, kind: ForKind = ForKind.SERIAL) -> For:
    return For(var, const(0), const(extent), kind, body)
