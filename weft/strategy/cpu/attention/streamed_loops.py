"""The loops of streamed attention: tiles of query rows, keys and values read in blocks.

Number of queries, of keys, and which keys count may be known only at run time; one kernel serves a
decoding step and a prompt. After Dao et al., "FlashAttention" (2022): the softmax of a row is kept
as a running maximum and running sums, so scratch has a constant size. Lanes run along the depth of
keys and the width of values, as in decode attention, so a single query fills the vectors; the
heads that share keys are further rows.

For each block of keys: raw scores, by a tree of additions for as many keys as there are lanes, or
from several rows on with transposed keys (``transposed_scores``); per
row the mask, the maximum and the exponentials; then the weighted values of a few rows at a time in
registers, onto the rescaled sums.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import float32, int64
from weft.strategy.common.attention import LOWEST, At, KeySource, Row, SourceOf
from weft.strategy.cpu.attention.decode_loops import below, unrolled, with_row_sums
from weft.strategy.cpu.attention.fused_tile import in_tiles, loop
from weft.strategy.cpu.attention.transposed_scores import (
    MIN_ROWS,
    TILE_ROWS,
    scores_of_tile,
    transpose_keys,
    transposed_keys,
)
from weft.support.dataclass import dataclass
from weft.te import exp
from weft.tir import Buffer, Ramp, Var, call
from weft.tir.expr import BufferLoad, PrimExpr, Shuffle, const, int_value, maximum, minimum, select
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import Allocate, BufferStore, Evaluate, ForKind, IfThenElse, LetStmt, Stmt, seq

LINE_BYTES = 64  # of a cache line
MAX_ROWS = 32  # rows of a tile: the keys of a block are read from L1 for all of them
MAX_BLOCK = 128  # keys of a block
ACCUMULATORS, VECTORS, ROWS = 16, 8, 4  # of a register tile of weighted sums


@dataclass(frozen=True, slots=True)
class StreamedLoops:
    """Builds the statement over the buffers from which ``source_of`` makes a ``KeySource``."""

    lanes: int
    block_bytes: int  # of the values of a block, which stay in L1
    source_of: SourceOf

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source = self.source_of(inputs, outputs[0])
        rows = source.queries * source.group
        fixed = int_value(rows)
        height = MAX_ROWS if fixed is None else max(min(MAX_ROWS, fixed), 1)
        tiles = (rows + (height - 1)) // height

        def task(index: PrimExpr) -> Stmt:
            at = unravel(index // tiles, source.leads)
            first = index % tiles * height
            count = minimum(rows - first, const(height))
            return _Task(self.lanes, self.block_bytes, source, at, first, count, height,
                         Var("high", int64)).build()

        return loop("task", element_count(source.leads) * tiles, task, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The buffers of a task; rows are padded to whole register tiles."""

    queries: Buffer  # [rows, depth]
    keys: Buffer  # [vectors of depth, keys, lanes]
    across: Buffer  # [depth, keys]: the same keys, transposed
    scores: Buffer  # [rows, block], then their exponentials
    sums: Buffer  # [rows, width]
    top: Buffer  # [rows, lanes]: the running maximum, in all lanes
    factor: Buffer  # [rows, lanes]: the factor of earlier sums, in all lanes
    total: Buffer  # [rows, lanes]: the sums of exponentials, to be added up


@dataclass(frozen=True, slots=True)
class _Task:
    """``count`` rows from ``first`` on, of the heads that share the keys at ``at``.

    ``high`` stands for the end of the keys that the rows see.
    """

    lanes: int
    block_bytes: int
    source: KeySource
    at: At
    first: PrimExpr
    count: PrimExpr
    height: int
    high: Var

    def build(self) -> Stmt:
        x = self._scratch()
        group = self.source.group
        low = Var("low", int64)
        span = self.source.span(self.at, self.first // group,
                                (self.first + (self.count - 1)) // group)
        blocks = maximum((self.high - low + (self.block - 1)) // self.block, const(0, int64))
        body = seq([
            self._rows(lambda row: self._start(x, row)),
            loop("block", blocks, lambda b: self._block(x, low + b * self.block)),
            self._rows(lambda row: self._finish(x, row)),
        ])
        body = LetStmt(low, span[0], LetStmt(self.high, span[1], body))
        used = (x.across,) if self._transposes else ()
        for buffer in (x.queries, x.keys, *used, x.scores, x.sums, x.top, x.factor, x.total):
            body = Allocate(buffer, body)
        return body

    @property
    def block(self) -> int:
        """Keys of a block: whole vectors."""
        fitting = self.block_bytes // (4 * self.source.sizes[1]) // self.lanes * self.lanes
        return min(max(fitting, self.lanes), MAX_BLOCK)

    def _scratch(self) -> _Scratch:
        depth, width = (-(-n // self.lanes) * self.lanes for n in self.source.sizes)
        tile = TILE_ROWS if self._transposes else self._register_rows()
        rows = -(-self.height // tile) * tile

        def held(name: str, size: int) -> Buffer:
            return Buffer(name, (const(rows), const(size)), float32)

        keys = Buffer("keys", tuple(map(const, (depth // self.lanes, self.lanes, self.lanes))),
                      float32)
        sizes = {"scores": self.block, "sums": width, "top": self.lanes, "factor": self.lanes,
                 "total": self.lanes}
        across = transposed_keys(depth, self.lanes)
        return _Scratch(held("queries", depth), keys, across,
                        *(held(*item) for item in sizes.items()))

    def _register_rows(self) -> int:
        """Rows of a register tile; whole values are read at a time, in the order of memory."""
        vectors = min(-(-self.source.sizes[1] // self.lanes), VECTORS)
        return min(max(ACCUMULATORS // vectors, 1), ROWS, self.height)

    def _row(self, row: PrimExpr) -> Row:
        number = self.first + row
        return Row(number // self.source.group, number % self.source.group)

    def _rows(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("row", self.count, body)

    def _lanes(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def _all(self, buffer: Buffer, row: PrimExpr, value: PrimExpr) -> Stmt:
        return self._lanes(lambda lane: BufferStore(buffer, value, (row, lane)))

    def _start(self, x: _Scratch, row: PrimExpr) -> Stmt:
        """Pack a query, padded with zeros, and clear the sums."""
        depth, width = self.source.sizes
        zero = const(0, float32)

        def pack(first: PrimExpr, count: int) -> Stmt:
            limit = None if count == self.lanes else depth

            def element(lane: PrimExpr) -> Stmt:
                d = first + lane
                query = self.source.query(self.at, self._row(row), d).astype(float32)
                value = query * const(self.source.scale, float32)
                return BufferStore(x.queries, below(d, limit, value, 0.0), (row, d))

            return self._lanes(element)

        vectors = -(-width // self.lanes)
        return seq([
            in_tiles(depth, self.lanes, pack),
            loop("vector", vectors, lambda n: self._lanes(lambda lane: BufferStore(
                x.sums, zero, (row, n * self.lanes + lane)))),
            self._all(x.top, row, const(LOWEST, float32)), self._all(x.total, row, zero),
        ])

    def _block(self, x: _Scratch, first: PrimExpr) -> Stmt:
        start, count = Var("start", int64), Var("count", int64)
        vectors = (count + (self.lanes - 1)) // self.lanes
        body = seq([
            # Keys outside, rows inside: a vector of keys is read from memory once.
            loop("vector", vectors, lambda n: self._scores_of_rows(x, n * self.lanes, start)),
            self._rows(lambda row: self._softmax(x, row, start, vectors)),
            in_tiles(self.source.sizes[1], VECTORS * self.lanes,
                     lambda e, width: self._sums(x, start, count, e, width)),
        ])
        body = LetStmt(count, minimum(self.high - start, const(self.block)), body)
        return LetStmt(start, first, body)

    @property
    def _transposes(self) -> bool:
        """Whether a tile may have enough rows for a transpose of the keys."""
        return self.height >= MIN_ROWS

    def _scores_of_rows(self, x: _Scratch, n: PrimExpr, start: PrimExpr) -> Stmt:
        """The raw scores of all rows with the packed keys; ``n`` numbers the first in the block."""
        def number(key: PrimExpr) -> PrimExpr:
            return minimum(start + n + key, self.high - 1)

        one_by_one = seq([
            loop("key", self.lanes, lambda key: self._pack_key(x, key, number(key))),
            self._rows(lambda row: self._scores(x, row, n, start)),
        ])
        if not self._transposes:
            return one_by_one
        depth = self.source.sizes[0]

        def element(key: PrimExpr, d: PrimExpr) -> PrimExpr:
            return _as_float32(self.source.key(self.at, number(key), d))

        together = seq([
            transpose_keys(x.across, element, (depth, self.lanes)),
            loop("tile", (self.count + (TILE_ROWS - 1)) // TILE_ROWS, lambda t: scores_of_tile(
                x.queries, x.across, x.scores, (t * TILE_ROWS, n),
                (min(TILE_ROWS, self.height), depth, self.lanes))),
        ])
        return IfThenElse(self.count >= MIN_ROWS, together, one_by_one)

    def _pack_key(self, x: _Scratch, key: PrimExpr, number: PrimExpr) -> Stmt:
        """Copy a key as float32, padded with zeros.

        Beyond the end of keys the last one is copied again. The rows then find all keys at constant
        distances, whatever the cache is.
        """
        depth = self.source.sizes[0]

        def vector(first: PrimExpr, count: int) -> Stmt:
            limit = None if count == self.lanes else depth
            return self._lanes(lambda lane: BufferStore(x.keys, below(
                first + lane, limit,
                _as_float32(self.source.key(self.at, number, first + lane)), 0.0),
                (first // self.lanes, key, lane)))

        return in_tiles(depth, self.lanes, vector)

    def _request(self, row: PrimExpr, d: PrimExpr, first: PrimExpr) -> Stmt | None:
        """Prefetch a share of the vector of keys from ``first`` on, for each vector of a query.

        Memory is then read while the rows of a group are computed. A single row takes less time
        than its keys, which the hardware prefetches.
        """
        group, depth = self.source.group, self.source.sizes[0]
        if group == 1:
            return None
        step = LINE_BYTES // self.source.key(self.at, first, const(0)).dtype.itemsize
        vectors, lines = -(-depth // self.lanes), -(-depth // step)
        share = -(-self.lanes * lines // (group * vectors))

        def line(n: PrimExpr) -> Stmt:
            number = (row * vectors + d) * share + n
            key = minimum(first + number // lines, self.high - 1)
            return Evaluate(call("handle", "prefetch", self.source.key(
                self.at, key, number % lines * step)))

        return unrolled(share, line)

    def _scores(self, x: _Scratch, row: PrimExpr, n: PrimExpr, start: PrimExpr) -> Stmt:
        """The raw scores of a row with the packed keys; ``n`` numbers the first in the block."""
        acc = Buffer("acc", (const(self.lanes), const(self.lanes)), float32, "local")

        def step(d: PrimExpr, key: PrimExpr, lane: PrimExpr) -> Stmt:
            at = d * self.lanes + lane
            value = acc.load(key, lane) + x.queries.load(row, at) * x.keys.load(d, key, lane)
            return BufferStore(acc, value, (key, lane))

        stored = (row, Ramp(n, const(1), self.lanes))
        return Allocate(acc, seq([
            unrolled(self.lanes, lambda key: self._lanes(
                lambda lane: BufferStore(acc, const(0, float32), (key, lane)))),
            loop("d", -(-self.source.sizes[0] // self.lanes), lambda d: seq([
                self._request(row, d, start + n + self.lanes),
                unrolled(self.lanes, lambda key: self._lanes(lambda lane: step(d, key, lane))),
            ])),
            with_row_sums(acc, self.lanes, lambda sums: BufferStore(x.scores, sums, stored)),
        ]))

    def _softmax(self, x: _Scratch, row: PrimExpr, start: PrimExpr, vectors: PrimExpr) -> Stmt:
        """Replaces the scores of a row by their exponentials; ``factor`` rescales earlier sums."""
        best, partial = (Buffer(name, (const(self.lanes),), float32, "local")
                         for name in ("best", "part"))

        def mask(n: PrimExpr, lane: PrimExpr) -> Stmt:
            number, at = start + n * self.lanes + lane, (row, n * self.lanes + lane)
            score = self.source.masked(self.at, self._row(row), number, x.scores.load(*at))
            score = select(number < self.high, score, const(float("-inf"), float32))
            so_far = best.load(lane)
            stored = x.scores.load(*at)
            return seq([
                BufferStore(x.scores, score, at),
                # A NaN score does not change the maximum; it reaches the sums as NaN.
                BufferStore(best, select(stored > so_far, stored, so_far), (lane,)),
            ])

        def rescale(lane: PrimExpr) -> Stmt:
            at = (row, lane)
            # In the first block the old maximum is LOWEST: the factor is finite, the sums are 0.
            return seq([
                BufferStore(x.factor, exp(x.factor.load(*at) - x.top.load(*at)), at),
                BufferStore(partial, const(0, float32), (lane,)),
            ])

        def power(n: PrimExpr, lane: PrimExpr) -> Stmt:
            at = (row, n * self.lanes + lane)
            return seq([
                BufferStore(x.scores, exp(x.scores.load(*at) - x.top.load(row, lane)), at),
                BufferStore(partial, partial.load(lane) + x.scores.load(*at), (lane,)),
            ])

        def largest(a: PrimExpr, b: PrimExpr) -> PrimExpr:
            return select(b > a, b, a)

        every = (row, Ramp(const(0), const(1), self.lanes))
        return Allocate(best, Allocate(partial, seq([
            self._lanes(lambda lane: BufferStore(best, x.top.load(row, lane), (lane,))),
            self._lanes(lambda lane: BufferStore(x.factor, x.top.load(row, lane), (row, lane))),
            loop("vector", vectors, lambda n: self._lanes(lambda lane: mask(n, lane))),
            _in_all_lanes(_whole(best, self.lanes), self.lanes, largest,
                          lambda top: BufferStore(x.top, top, every)),
            self._lanes(rescale),
            loop("vector", vectors, lambda n: self._lanes(lambda lane: power(n, lane))),
            self._lanes(lambda lane: BufferStore(
                x.total, x.total.load(row, lane) * x.factor.load(row, lane) + partial.load(lane),
                (row, lane))),
        ])))

    def _sums(self, x: _Scratch, start: PrimExpr, count: PrimExpr, e: PrimExpr, width: int
              ) -> Stmt:
        """Add the weighted values of a block to ``width`` elements, from ``e`` on, of all rows."""
        tile = self._register_rows()
        vectors, limit = -(-width // self.lanes), self.source.sizes[1]
        partial = limit if width % self.lanes else None

        def rows(number: PrimExpr) -> Stmt:
            acc = Buffer("acc", (const(tile), const(vectors), const(self.lanes)), float32, "local")

            def every(body: Callable[[tuple[PrimExpr, ...], PrimExpr, PrimExpr], Stmt]) -> Stmt:
                return unrolled(tile, lambda r: unrolled(vectors, lambda n: self._lanes(
                    lambda lane: body((r, n, lane), number * tile + r,
                                      e + n * self.lanes + lane))))

            def step(key: PrimExpr) -> Stmt:
                def element(i: tuple[PrimExpr, ...], row: PrimExpr, at: PrimExpr) -> Stmt:
                    value = _as_float32(self.source.value(self.at, start + key, at))
                    value = below(at, partial, value, 0.0)
                    return BufferStore(acc, acc.load(*i) + x.scores.load(row, key) * value, i)

                return every(element)

            # Each block starts from zero: a sum over many keys is one of short sums.
            return Allocate(acc, seq([
                every(lambda i, *_: BufferStore(acc, const(0, float32), i)),
                loop("key", count, step),
                every(lambda i, row, at: BufferStore(
                    x.sums, x.sums.load(row, at) * x.factor.load(row, i[-1]) + acc.load(*i),
                    (row, at))),
            ]))

        return loop("tile", (self.count + (tile - 1)) // tile, rows)

    def _finish(self, x: _Scratch, row: PrimExpr) -> Stmt:
        """Divide the sums of a row by the sum of its exponentials."""
        width, every = self.source.sizes[1], (row, Ramp(const(0), const(1), self.lanes))

        def write(first: PrimExpr, count: int) -> Stmt:
            def element(lane: PrimExpr) -> Stmt:
                e = first + lane
                stored = self.source.store(self.at, self._row(row), e, x.sums.load(row, e),
                                           x.total.load(row, lane))
                return stored if count == self.lanes else IfThenElse(e < width, stored)

            return self._lanes(element)

        return seq([
            _in_all_lanes(BufferLoad(x.total, every, None), self.lanes, lambda a, b: a + b,
                          lambda total: BufferStore(x.total, total, every)),
            in_tiles(width, self.lanes, write),
        ])


def _as_float32(x: PrimExpr) -> PrimExpr:
    return x.astype(float32)


def _whole(register: Buffer, lanes: int) -> PrimExpr:
    return BufferLoad(register, (Ramp(const(0), const(1), lanes),), None)


def _in_all_lanes(
    vector: PrimExpr, lanes: int, combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
    body: Callable[[PrimExpr], Stmt],
) -> Stmt:
    """``body(vector)``, each of whose lanes holds the reduction of all lanes of ``vector``."""
    named = [(Var("all", vector.dtype), vector)]
    step = lanes // 2
    while step:
        last = named[-1][0]
        rotated = Shuffle((last,), tuple((i + step) % lanes for i in range(lanes)))
        named.append((Var("all", vector.dtype), combine(last, rotated)))
        step //= 2
    result = body(named[-1][0])
    for var, value in reversed(named):
        result = LetStmt(var, value, result)
    return result
