"""The loops of a sort on a GPU: tiles in shared memory, then merges or a tournament.

Rows of up to ``LARGEST_TILE`` elements are sorted by one block each. Longer rows are sorted in
tiles; then runs are merged pairwise, one launch for each doubling. In a merge every element finds
its position by binary search in the other run (rank merge; Satish, Harris and Garland, "Designing
efficient sorting algorithms for manycore GPUs", 2009). A top-k of a long row is a tournament: the
best of each tile are the input of the next round.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import int64
from weft.strategy.cuda.common.block_program import (
    Index,
    allocated,
    elements,
    grid,
    threads,
    unrolled,
)
from weft.strategy.cuda.sort.tile import SortedTile, goes_before
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Var, const, floordiv, minimum, select
from weft.tir.stmt import BufferStore, IfThenElse, LetStmt, Stmt, seq

LARGEST_TILE = 2048  # elements; 1024 threads exchange pairs
MERGE_THREADS = 256


@dataclass(frozen=True, slots=True)
class SortLoops:
    """``order`` receives the positions of the first elements of each sorted row of ``source``.

    ``size`` is the length of a row along ``axis``, ``count`` the number of positions wanted.
    """

    source: Buffer
    order: Buffer
    axis: int
    size: int
    count: int
    is_ascend: bool

    @property
    def rows(self) -> tuple[PrimExpr, ...]:
        return (*self.source.shape[:self.axis], *self.source.shape[self.axis + 1:])

    def loops(self) -> Stmt:
        if self.size <= LARGEST_TILE:
            return self._round(None, self.size, self.order, self.count)
        if 4 * self.count <= LARGEST_TILE:
            return self._tournament()
        return self._merge_sort()

    def _at(self, row: Index, position: PrimExpr) -> Index:
        return (*row[:self.axis], position, *row[self.axis:])

    def _key(self, row: Index, position: PrimExpr) -> PrimExpr:
        return self.source.load(*self._at(row, position))

    def _round(self, candidates: Buffer | None, size: int, target: Buffer, kept: int) -> Stmt:
        """Sort the ``size`` candidates of each row by tiles; keep the first ``kept`` of each tile.

        ``candidates`` (rows, size) are positions, all of the row if ``None``. ``target`` is
        (rows, tiles * kept), or the result if one tile has the whole row.
        """
        tile = SortedTile.of(min(LARGEST_TILE, _power_above(size)), self.source.dtype,
                             is_ascend=self.is_ascend)
        tiles = -(-size // tile.size)

        def block(index: Index) -> Stmt:
            *row, number = index

            def position(i: PrimExpr) -> PrimExpr:
                at = minimum(number * tile.size + i, size - 1)
                return at if candidates is None else candidates.load(*row, at)

            def write(i: PrimExpr) -> Stmt:
                value = tile.positions.load(i).astype(target.dtype)
                index_of_result = (self._at(tuple(row), i) if target is self.order
                         else (*row, number * kept + i))
                return BufferStore(target, value, index_of_result)

            return allocated([tile.keys, tile.positions], seq([
                tile.load(lambda i: (self._key(tuple(row), position(i)), position(i)),
                          lambda i: number * tile.size + i < size),
                tile.sort(), _block_stride(kept, tile.num_threads, write)]))

        return grid([*self.rows, tiles], block)

    def _tournament(self) -> Stmt:
        """Rounds of tiles; from the last tile of a row, which may be short, the winners follow."""
        winners, rounds = list[Buffer](), list[Stmt]()
        candidates, size = None, self.size
        while size > LARGEST_TILE:
            tiles = -(-size // LARGEST_TILE)
            last = min(self.count, size - (tiles - 1) * LARGEST_TILE)
            target = Buffer("winners", (*self.rows, const(tiles * self.count)), int64)
            rounds.append(self._round(candidates, size, target, self.count))
            winners.append(target)
            candidates, size = target, (tiles - 1) * self.count + last
        rounds.append(self._round(candidates, size, self.order, self.count))
        return allocated(winners, seq(rounds))

    def _merge_sort(self) -> Stmt:
        """Sorted tiles, then merges of runs, from one half of the scratch to the other."""
        tiles = -(-self.size // LARGEST_TILE)
        runs = [Buffer(f"runs{n}", (*self.rows, const(tiles * LARGEST_TILE)), int64)
                for n in range(2)]
        passes = [self._round(None, self.size, runs[0], LARGEST_TILE)]
        width, source = LARGEST_TILE, 0
        while width < self.size:
            is_last = 2 * width >= self.size
            passes.append(self._merge(runs[source], None if is_last else runs[1 - source], width))
            width, source = 2 * width, 1 - source
        return allocated(runs, seq(passes))

    def _merge(self, runs: Buffer, target: Buffer | None, width: int) -> Stmt:
        """Merge pairs of runs of ``width`` positions; into the result if there is no target."""

        def element(index: Index) -> Stmt:
            *row, i = index
            own, rank = Var("own", int64), Var("rank", int64)
            pair = floordiv(i, const(2 * width)) * (2 * width)
            is_left = i < pair + width
            low = select(is_left, minimum(pair + width, self.size), pair)
            high = select(is_left, minimum(pair + 2 * width, self.size), pair + width)
            offset = i - select(is_left, pair, pair + width)
            store = BufferStore(self.order if target is None else target, own,
                                self._at(tuple(row), rank) if target is None else (*row, rank))
            if target is None and self.count < self.size:
                store = IfThenElse(rank < self.count, store)
            bounds = Buffer("bounds", (const(2),), int64, "local")
            found = bounds.load(const(0)) - low
            return LetStmt(own, runs.load(*row, i), allocated([bounds], seq([
                BufferStore(bounds, low, (const(0),)), BufferStore(bounds, high, (const(1),)),
                unrolled("halving", width.bit_length(), lambda _: self._halve(
                    tuple(row), runs, own, bounds)),
                LetStmt(rank, pair + offset + found, store)])))

        return elements([*self.rows, const(self.size)], MERGE_THREADS, element)

    def _halve(self, row: Index, runs: Buffer, own: PrimExpr, bounds: Buffer) -> Stmt:
        """One step of the search for the first element of the other run behind ``own``."""
        low, high = bounds.load(const(0)), bounds.load(const(1))
        middle, other = Var("middle", int64), Var("other", int64)
        earlier = goes_before(self._key(row, other), self._key(row, own), other, own,
                              is_ascend=self.is_ascend)
        step = IfThenElse(earlier, BufferStore(bounds, middle + 1, (const(0),)),
                          BufferStore(bounds, middle, (const(1),)))
        return IfThenElse(low < high, LetStmt(middle, floordiv(low + high, const(2)), LetStmt(
            other, runs.load(*row, middle), step)))


def _block_stride(count: int, threads_of_block: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``body(i)`` for ``i`` below ``count``, adjacent threads at adjacent indices."""
    iterations = -(-count // threads_of_block)

    def thread(t: PrimExpr) -> Stmt:
        def iteration(n: PrimExpr) -> Stmt:
            i = n * threads_of_block + t
            return IfThenElse(i < count, body(i))

        return unrolled("n", iterations, iteration)

    return threads(min(threads_of_block, max(count, 1)), thread)


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
