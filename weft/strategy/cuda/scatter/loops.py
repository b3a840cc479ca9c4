"""The loops of a scatter on a GPU, with the same result in each run.

Updates of one element are applied in their order, as the operators define; atomics would apply them
in any order, and floating-point sums would differ from run to run.

``by_lines``: updates along an axis write only to the line of their other indices, so each line has
a thread. ``sorted_updates``: the numbers of the updates are sorted by the element that they write
(``sort``, which is stable); the first thread of a run of equal elements applies the whole run.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import int64
from weft.strategy.cuda.common.block_program import Index, allocated, elements, loop, unrolled
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Var, all_of, any_of, const, floordiv, maximum
from weft.tir.stmt import BufferStore, IfThenElse, LetStmt, Stmt, seq

THREADS = 256
Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]


def copy(source: Buffer, target: Buffer) -> Stmt:
    """Copy all elements of ``source`` to ``target``, which has the same shape."""
    return elements(source.shape, THREADS, lambda i: BufferStore(target, source.load(*i), i))


def by_lines(index: Buffer, updates: Buffer, target: Buffer, axis: int,
             combine: Combine) -> Stmt:
    """One thread for each line of ``index`` along ``axis``, update after update."""
    lines = (*index.shape[:axis], *index.shape[axis + 1:])

    def line(i: Index) -> Stmt:
        def update(k: PrimExpr) -> Stmt:
            own = (*i[:axis], k, *i[axis:])
            found = Var("found", int64)
            at = (*i[:axis], found, *i[axis:])
            write = BufferStore(target, combine(target.load(*at), updates.load(*own)), at)
            inside = all_of(found >= 0, found < target.shape[axis])
            return LetStmt(found, index.load(*own).astype(int64), IfThenElse(inside, write))

        return loop("k", index.shape[axis], update)

    return elements(lines, THREADS // 2, line)


@dataclass(frozen=True, slots=True)
class SortedUpdates:
    """Updates in the order of the slots that they write.

    ``slots`` (M,) has the slot of each update, ``num_slots`` for one that is dropped; ``order``
    (M,) sorts them. ``target_at(slot, j)`` and ``update_at(number, j)`` are the indices of element
    ``j`` of a slice of shape ``inner``.
    """

    slots: Buffer
    order: Buffer
    updates: Buffer
    target: Buffer
    num_slots: PrimExpr
    inner: tuple[PrimExpr, ...]
    target_at: Callable[[PrimExpr, Index], Index]
    update_at: Callable[[PrimExpr, Index], Index]
    combine: Combine

    def loops(self, count: int) -> Stmt:
        """Apply ``count`` updates."""

        def element(index: Index) -> Stmt:
            rank, *j = index
            slot = Var("slot", int64)
            before = self.slots.load(self.order.load(maximum(rank - 1, 0)))
            is_first = any_of(rank.equal(0), before.not_equal(slot))
            apply = IfThenElse(all_of(slot < self.num_slots, is_first),
                               self._run(rank, slot, tuple(j), count))
            return LetStmt(slot, self.slots.load(self.order.load(rank)), apply)

        return elements((const(count), *self.inner), THREADS, element)

    def _run(self, rank: PrimExpr, slot: PrimExpr, j: Index, count: int) -> Stmt:
        """Apply the updates of one slot, which start at ``rank`` of the sorted order."""
        bounds = Buffer("bounds", (const(2),), int64, "local")
        value = Buffer("value", (const(1),), self.target.dtype, "local")
        low, high = bounds.load(const(0)), bounds.load(const(1))
        at = self.target_at(slot, j)

        def halve(_: PrimExpr) -> Stmt:
            """One step of the search for the end of the run, in which ``low`` stays inside."""
            middle = Var("middle", int64)
            same = self.slots.load(self.order.load(middle)).equal(slot)
            step = IfThenElse(same, BufferStore(bounds, middle, (const(0),)),
                              BufferStore(bounds, middle, (const(1),)))
            return IfThenElse(low + 1 < high, LetStmt(middle, floordiv(low + high, const(2)), step))

        def update(k: PrimExpr) -> Stmt:
            number = self.order.load(rank + k)
            new = self.combine(value.load(const(0)), self.updates.load(*self.update_at(number, j)))
            return BufferStore(value, new, (const(0),))

        return allocated([bounds, value], seq([
            BufferStore(bounds, rank, (const(0),)), BufferStore(bounds, const(count), (const(1),)),
            unrolled("halving", count.bit_length(), halve),
            BufferStore(value, self.target.load(*at), (const(0),)),
            loop("k", high - rank, update),
            BufferStore(self.target, value.load(const(0)), at)]))
