"""Bitonic sort of a tile in shared memory.

The network is Batcher's ("Sorting networks and their applications", 1968). The tile holds keys and
positions. The order is total: ties by position, NaN above every number, and absent elements last.
So the network, which is not stable itself, gives the stable order.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import DType, int32
from weft.strategy.cuda.common.block_program import threads
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Var, all_of, any_of, const, floordiv, floormod, not_
from weft.tir.stmt import AttrStmt, BufferStore, IfThenElse, LetStmt, Stmt, seq
from weft.tir.transform.gpu.thread_axes import THREADS_APART
from weft.topi.sort import before

# Position of an absent element: behind all others.
ABSENT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SortedTile:
    """``size`` (a power of two) keys and positions of one block, sorted by half as many threads.

    Positions are int32 and below ``ABSENT``.
    """

    size: int
    dtype: DType
    is_ascend: bool
    keys: Buffer
    positions: Buffer

    @staticmethod
    def of(size: int, dtype: DType, *, is_ascend: bool) -> SortedTile:
        keys = Buffer("keys", (const(size),), dtype, "shared")
        positions = Buffer("positions", (const(size),), int32, "shared")
        return SortedTile(size, dtype, is_ascend, keys, positions)

    @property
    def num_threads(self) -> int:
        return max(1, self.size // 2)

    def load(self, key: Callable[[PrimExpr], tuple[PrimExpr, PrimExpr]],
             present: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        """Fill the tile: ``key(i)`` gives key and position of element ``i`` if ``present(i)``."""

        def pair(t: PrimExpr) -> Stmt:
            return seq([self._fill(t + half * self.num_threads, key, present)
                        for half in range(2 if self.size > 1 else 1)])

        return threads(self.num_threads, pair)

    def _fill(self, i: PrimExpr, key: Callable[[PrimExpr], tuple[PrimExpr, PrimExpr]],
              present: Callable[[PrimExpr], PrimExpr]) -> Stmt:
        value, position = key(i)
        absent = seq([BufferStore(self.keys, const(0, self.dtype), (i,)),
                      BufferStore(self.positions, const(ABSENT, int32), (i,))])
        return IfThenElse(present(i), seq([
            BufferStore(self.keys, value, (i,)),
            BufferStore(self.positions, position.astype(int32), (i,))]), absent)

    def sort(self) -> Stmt:
        """The network: all passes of all merges, with a barrier after each."""
        passes, width = list[Stmt](), 2
        while width <= self.size:
            distance = width // 2
            while distance:
                passes.append(self._pass(width, distance))
                distance //= 2
            width *= 2
        return seq(passes)

    def _pass(self, width: int, distance: int) -> Stmt:
        """Compare and exchange elements that are ``distance`` apart, in runs of ``width``."""

        def pair(t: PrimExpr) -> Stmt:
            low = floordiv(t, const(distance)) * (2 * distance) + floormod(t, const(distance))
            high = low + distance
            ascends = floormod(floordiv(low, const(width)), const(2)).equal(0)
            first, second = Var("low", low.dtype), Var("high", low.dtype)
            wrong = self._goes_before(second, first)
            right = self._goes_before(first, second)
            exchange = IfThenElse(any_of(all_of(ascends, wrong), all_of(not_(ascends), right)),
                                  self._exchange(first, second))
            pair = LetStmt(first, low, LetStmt(second, high, exchange))
            return AttrStmt(THREADS_APART, True, pair)

        return threads(self.num_threads, pair)

    def _exchange(self, a: PrimExpr, b: PrimExpr) -> Stmt:
        key, position = Var("key", self.dtype), Var("position", int32)
        return LetStmt(key, self.keys.load(a), LetStmt(position, self.positions.load(a), seq([
            BufferStore(self.keys, self.keys.load(b), (a,)),
            BufferStore(self.positions, self.positions.load(b), (a,)),
            BufferStore(self.keys, key, (b,)), BufferStore(self.positions, position, (b,))])))

    def _goes_before(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The total order of two elements of the tile."""
        first, second = self.positions.load(a), self.positions.load(b)
        return all_of(first.not_equal(const(ABSENT, int32)), any_of(
            second.equal(const(ABSENT, int32)),
            goes_before(self.keys.load(a), self.keys.load(b), first, second,
                        is_ascend=self.is_ascend)))


def goes_before(a: PrimExpr, b: PrimExpr, first: PrimExpr, second: PrimExpr, *,
                is_ascend: bool) -> PrimExpr:
    """Whether key ``a`` at position ``first`` sorts before ``b`` at ``second``; stable."""
    less = before(a, b) if is_ascend else before(b, a)
    more = before(b, a) if is_ascend else before(a, b)
    return any_of(less, all_of(not_(more), first < second))
