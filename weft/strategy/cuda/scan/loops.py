"""The loops of a scan on a GPU.

Along a row, a block scans tiles of ``TILE`` elements, cached in shared memory so that the accesses
of a warp are adjacent. Each thread scans adjacent elements in registers, the totals of the threads
are scanned in shared memory (Hillis and Steele, "Data parallel algorithms", 1986), and a carry goes
from tile to tile. Few long rows take three launches (reduce, then scan: Merrill and Garland,
"Single-pass parallel prefix scan with decoupled look-back", 2016, section 2): totals of chunks,
their scan, and the chunks with their carries. The order of all additions is fixed, so results are
the same in each run, as a look-back's would not be.

Along another axis, adjacent threads scan adjacent columns.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.strategy.cuda.common.block_program import (
    Index,
    allocated,
    ceil_div,
    elements,
    grid,
    loop,
    one_thread,
    threads,
    unrolled,
)
from weft.strategy.cuda.machine_model import WARP
from weft.support.dataclass import dataclass
from weft.tir import AttrStmt, BufferStore, IfThenElse, LetStmt, Stmt, Var, all_of, const, seq
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, floordiv, floormod, if_then_else, maximum, minimum, select
from weft.tir.transform.gpu.thread_axes import THREADS_APART

THREADS = 256
PER_THREAD = 4
TILE = THREADS * PER_THREAD
_LEVELS = THREADS.bit_length() - 1

Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]


@dataclass(frozen=True, slots=True)
class ScanLoops:
    """``target[i] = combine(target[i - 1], source[i])`` along ``axis``.

    ``identity`` is that of ``combine``. ``exclusive`` takes ``source[i - 1]``; ``reverse`` starts
    at the end. With ``chunks`` above 1, that many blocks share each row.
    """

    source: Buffer
    target: Buffer
    axis: int
    combine: Combine
    identity: PrimExpr
    exclusive: bool
    reverse: bool
    chunks: int = 1

    @property
    def size(self) -> PrimExpr:
        return self.source.shape[self.axis]

    @property
    def rows(self) -> tuple[PrimExpr, ...]:
        """The extents of the other axes."""
        return (*self.source.shape[:self.axis], *self.source.shape[self.axis + 1:])

    def _at(self, row: Index, step: PrimExpr) -> Index:
        position = self.size - 1 - step if self.reverse else step
        return (*row[:self.axis], position, *row[self.axis:])

    def _source_at(self, row: Index, step: PrimExpr) -> PrimExpr:
        return self.source.load(*self._at(row, step)).astype(self.target.dtype)

    def by_columns(self) -> Stmt:
        """One thread for each row; the threads of a warp read adjacent elements."""
        total = Buffer("total", (const(1),), self.target.dtype, "local")
        zero = const(0)

        def row(index: Index) -> Stmt:
            def step(k: PrimExpr) -> Stmt:
                later = self.combine(total.load(zero), self._source_at(index, k))
                write = BufferStore(self.target, total.load(zero), self._at(index, k))
                update = BufferStore(total, later, (zero,))
                return seq([write, update] if self.exclusive else [update, write])

            return allocated([total], seq([BufferStore(total, self.identity, (zero,)),
                                           loop("k", self.size, step)]))

        return elements(self.rows, THREADS // 2, row)

    def by_rows(self) -> Stmt:
        """One block for each row."""
        if self.chunks > 1:
            return self._by_chunks()

        def row(index: Index) -> Stmt:
            return self._row(index, const(0), self.size, self.identity)

        return grid(self.rows, row)

    def _by_chunks(self) -> Stmt:
        """Totals of chunks, their exclusive scan, and the scan of each chunk from its carry."""
        totals = Buffer("totals", (*self.rows, const(self.chunks)), self.target.dtype)
        carries = Buffer("carries", totals.shape, self.target.dtype)
        # Whole tiles, so that vectors do not straddle two chunks.
        length = ceil_div(ceil_div(self.size, self.chunks), TILE) * TILE

        def part(index: Index) -> tuple[Index, PrimExpr, PrimExpr]:
            *row, chunk = index
            start = chunk * length
            return tuple(row), start, minimum(maximum(self.size - start, 0), length)

        def reduce(index: Index) -> Stmt:
            row, start, count = part(index)
            return self._row(row, start, count, self.identity, total=(totals, index))

        def scan(index: Index) -> Stmt:
            row, start, count = part(index)
            return self._row(row, start, count, carries.load(*index))

        of_totals = ScanLoops(totals, carries, len(self.rows), self.combine, self.identity,
                              exclusive=True, reverse=False)
        return allocated([totals, carries], seq([
            grid(totals.shape, reduce), of_totals.by_rows(), grid(totals.shape, scan)]))

    def _row(self, row: Index, start: PrimExpr, count: PrimExpr, carry: PrimExpr,
             total: tuple[Buffer, Index] | None = None) -> Stmt:
        """The tiles of ``count`` elements from ``start`` on; ``total`` receives only their sum."""
        dtype = self.target.dtype
        carried = Buffer("carry", (const(1),), dtype, "shared")
        sums = Buffer("sums", (const(2), const(THREADS)), dtype, "shared")
        cached = Buffer("cached", (const(TILE // WARP), const(WARP + 1)), dtype, "shared")
        last = sums.load(const(_LEVELS % 2), const(THREADS - 1))

        def tile(number: PrimExpr) -> Stmt:
            first = number * TILE

            def fetch(p: PrimExpr) -> Stmt:
                value = if_then_else(first + p < count, self._source_at(row, start + first + p),
                                     self.identity)
                return BufferStore(cached, value, _cached_at(p))

            def put(p: PrimExpr) -> Stmt:
                store = BufferStore(self.target, cached.load(*_cached_at(p)),
                                    self._at(row, start + first + p))
                return IfThenElse(first + p < count, store)

            statements = [_coalesced(fetch), threads(THREADS, lambda t: self._own_sum(
                              t, cached, sums)),
                          *(_level(sums, level, self.combine) for level in range(_LEVELS))]
            if total is None:
                statements += [threads(THREADS, lambda t: self._prefixes(t, cached, sums, carried)),
                               _coalesced(put)]
            following = self.combine(carried.load(const(0)), last)
            statements.append(one_thread(BufferStore(carried, following, (const(0),))))
            return seq(statements)

        statements = [one_thread(BufferStore(carried, carry, (const(0),))),
                      loop("tile", ceil_div(count, TILE), tile)]
        if total is not None:
            statements.append(one_thread(BufferStore(total[0], carried.load(const(0)), total[1])))
        return allocated([carried, sums, cached], seq(statements))

    def _own_sum(self, t: PrimExpr, cached: Buffer, sums: Buffer) -> Stmt:
        """The sum of a thread's adjacent elements, into the first row of ``sums``."""
        total = Buffer("own", (const(1),), self.target.dtype, "local")
        zero = const(0)

        def add(v: PrimExpr) -> Stmt:
            value = cached.load(*_cached_at(t * PER_THREAD + v))
            return BufferStore(total, self.combine(total.load(zero), value), (zero,))

        return allocated([total], seq([
            BufferStore(total, self.identity, (zero,)), unrolled("v", PER_THREAD, add),
            BufferStore(sums, total.load(zero), (zero, t))]))

    def _prefixes(self, t: PrimExpr, cached: Buffer, sums: Buffer, carried: Buffer) -> Stmt:
        """The results of a thread's elements, from the carry and the sums of earlier threads."""
        total = Buffer("running", (const(1),), self.target.dtype, "local")
        zero = const(0)
        earlier = sums.load(const(_LEVELS % 2), maximum(t - 1, 0))
        before = select(t > 0, self.combine(carried.load(zero), earlier), carried.load(zero))

        def step(v: PrimExpr) -> Stmt:
            at, value = _cached_at(t * PER_THREAD + v), Var("value", self.target.dtype)
            update = BufferStore(total, self.combine(total.load(zero), value), (zero,))
            write = BufferStore(cached, total.load(zero), at)
            both = seq([write, update] if self.exclusive else [update, write])
            return LetStmt(value, cached.load(*at), both)

        own = AttrStmt(THREADS_APART, True, unrolled("v", PER_THREAD, step))
        return allocated([total], seq([BufferStore(total, before, (zero,)), own]))


def _cached_at(p: PrimExpr) -> Index:
    """The index of element ``p`` of a tile in shared memory.

    Rows are padded to 33 words: adjacent elements, and elements that are 4 apart, are in different
    ones of the 32 banks.
    """
    return floordiv(p, const(WARP)), floormod(p, const(WARP))


def _coalesced(body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``body(p)`` for each element of a tile, adjacent threads at adjacent elements."""
    return threads(THREADS, lambda t: unrolled("n", PER_THREAD,
                                               lambda n: body(n * THREADS + t)))


def _level(sums: Buffer, level: int, combine: Combine) -> Stmt:
    """One level of the scan of the threads' sums, from one row of ``sums`` to the other."""
    distance, source = 1 << level, const(level % 2)
    target = const(1 - level % 2)

    def step(t: PrimExpr) -> Stmt:
        own = sums.load(source, t)
        other = sums.load(source, maximum(t - distance, 0))
        value = if_then_else(all_of(t >= distance), combine(other, own), own)
        return BufferStore(sums, value, (target, t))

    return threads(THREADS, step)
