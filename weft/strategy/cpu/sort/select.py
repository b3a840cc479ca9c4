"""The first few of the sorted order of long lines, without sorting them.

A line is cut into blocks, of each of which the first key is found. Of k blocks the first key is at
most some threshold, so that the first k elements are among those that do not exceed it: few more
than k of random ones. Only their blocks are read again.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.ir.dtype import int64
from weft.support.dataclass import dataclass
from weft.tir import (
    Broadcast,
    Buffer,
    BufferLoad,
    PrimExpr,
    Ramp,
    Var,
    as_prim,
    const,
    int_value,
    minimum,
    select,
)
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.topi.loop_nest import nest
from weft.topi.sort_network import Registers, lane_dtype, largest_key, signed_key

_ZERO, _ONE = as_prim(0), as_prim(1)
_LOW = (1 << 32) - 1  # the bits of a candidate that hold its position, below its key
Index = tuple[PrimExpr, ...]


def order_key(x: PrimExpr, *, is_ascend: bool) -> PrimExpr:
    """The signed integer in whose order numbers sort, with one for both zeros."""
    if x.dtype.is_float:
        zero = const(0, x.dtype.element)
        x = select(x.equal(zero), Broadcast(zero, x.dtype.lanes) if x.dtype.lanes > 1 else zero, x)
    return signed_key(x, is_ascend=is_ascend)


@dataclass(frozen=True, slots=True)
class LineSelection:
    """``order`` receives the positions of the first elements of the sorted lines of ``source``.

    Lines lie along the last axis; ``block`` elements, a multiple of ``lanes``, are read at once.
    """

    source: Buffer
    order: Buffer
    is_ascend: bool
    lanes: int
    block: int

    def loops(self) -> Stmt:
        return nest(self.source.shape[:-1], self._line, independent=True, work=self.size)

    @property
    def size(self) -> int:
        return int_value(self.source.shape[-1]) or 0

    @property
    def count(self) -> int:
        return int_value(self.order.shape[-1]) or 0

    @property
    def blocks(self) -> int:
        return -(-self.size // self.block)

    def _line(self, line: Index) -> Stmt:
        room = -(-self.blocks // self.lanes) * self.lanes
        kind = lane_dtype(self.source.dtype)
        firsts, keys = Buffer("firsts", (as_prim(room),), kind), Buffer(
            "keys", (as_prim(self.block),), kind)
        found = Buffer("found", (as_prim(self.size),), int64)
        number, threshold = (Buffer(name, (_ONE,), int64, "local") for name in ("n", "t"))
        largest = largest_key(kind, 1)
        body = seq([
            nest((as_prim(room - self.blocks),),
                 lambda i: BufferStore(firsts, largest, (i[0] + self.blocks,))),
            self._each_block(lambda b, within: self._first(line, firsts, b, within=within)),
            self._search(firsts, threshold, room // self.lanes),
            BufferStore(number, const(0), (_ZERO,)),
            self._each_block(lambda b, within: IfThenElse(
                firsts.load(b).astype(int64) <= threshold.load(_ZERO),
                self._collect(line, keys, found, number, threshold, b, within=within))),
            self._sorted(line, found, number)])
        for buffer in (firsts, keys, found, number, threshold):
            body = Allocate(buffer, body)
        return body

    def _each_block(self, body: Callable[[PrimExpr, bool], Stmt]) -> Stmt:
        """``body`` of every block, and whether it ends before the line does."""
        full = self.size // self.block
        return seq([nest((as_prim(full),), lambda i: body(i[0], True)),
                    body(as_prim(full), False) if full < self.blocks else None])

    def _keys(self, line: Index, block: PrimExpr, *, within: bool) -> Registers:
        largest = largest_key(lane_dtype(self.source.dtype), self.lanes)
        vectors = []
        for first in range(0, self.block, self.lanes):
            at = Ramp(block * self.block + first, _ONE, self.lanes)
            inside = None if within else at < self.size
            key = order_key(BufferLoad(self.source, (*line, at), inside), is_ascend=self.is_ascend)
            vectors.append(key if inside is None else select(inside, key, largest))
        return Registers(vectors)

    def _first(self, line: Index, firsts: Buffer, block: PrimExpr, *, within: bool) -> Stmt:
        """Find the first key of a block."""
        registers = self._keys(line, block, within=within)
        least: PrimExpr = registers.vectors[0]
        for vector in registers.vectors[1:]:
            least = registers.let(minimum(least, vector))
        least = registers.across(least, minimum)
        return registers.around(BufferStore(firsts, least, (block,)))

    def _search(self, firsts: Buffer, threshold: Buffer, vectors: int) -> Stmt:
        """The least threshold that ``count`` first keys do not exceed, bit by bit."""
        kind = firsts.dtype
        bit, least = Var("bit", int64), threshold.load(_ZERO)
        lower = Var("lower", int64)
        within = Buffer("within", (as_prim(self.lanes),), kind, "local")
        lane = Ramp(_ZERO, _ONE, self.lanes)

        def tally(i: Index) -> Stmt:
            vector = firsts.load(Ramp(i[0] * self.lanes, _ONE, self.lanes))
            is_within = vector <= Broadcast(lower.astype(kind), self.lanes)
            tallied = within.load(lane)
            more = select(is_within, tallied + const(1, kind), tallied)
            return BufferStore(within, more, (lane,))

        registers = Registers([within.load(lane)])
        total = registers.across(registers.vectors[0], lambda a, b: a + b)
        decide = registers.around(IfThenElse(
            total >= const(self.count, kind), BufferStore(threshold, lower, (_ZERO,))))
        step = LetStmt(lower, least - te.shift_left(as_prim(1), kind.bits - 1 - bit), seq([
            BufferStore(within, Broadcast(const(0, kind), self.lanes), (lane,)),
            nest((as_prim(vectors),), tally), decide]))
        return seq([BufferStore(threshold, const((1 << (kind.bits - 1)) - 1), (_ZERO,)),
                    Allocate(within, _loop(bit, kind.bits, step))])

    def _collect(self, line: Index, keys: Buffer, found: Buffer, number: Buffer,
                 threshold: Buffer, block: PrimExpr, *, within: bool) -> Stmt:
        """Append the elements of a block that do not exceed the threshold."""
        registers = self._keys(line, block, within=within)
        stores = [BufferStore(keys, vector, (Ramp(as_prim(k * self.lanes), _ONE, self.lanes),))
                  for k, vector in enumerate(registers.vectors)]
        size = self.block if within else self.size % self.block

        def append(i: Index) -> Stmt:
            key, position, at = Var("key", int64), block * self.block + i[0], number.load(_ZERO)
            # The next element overwrites one that exceeds it.
            return LetStmt(key, keys.load(i[0]).astype(int64), seq([
                BufferStore(found, te.bitwise_or(te.shift_left(key, 32), position), (at,)),
                BufferStore(number, at + (key <= threshold.load(_ZERO)).astype(int64),
                            (_ZERO,))]))

        return seq([registers.around(*stores), nest((as_prim(size),), append)])

    def _sorted(self, line: Index, found: Buffer, number: Buffer) -> Stmt:
        """Insertion into the sorted best so far, of what goes before the last of them."""
        best = Buffer("best", (as_prim(self.count),), int64)
        slot = Buffer("slot", (_ONE,), int64, "local")
        at, last = slot.load(_ZERO), as_prim(self.count - 1)

        def insert(value: PrimExpr, end: PrimExpr) -> Stmt:
            move = IfThenElse(value < best.load(at - 1), seq([
                BufferStore(best, best.load(at - 1), (at,)), BufferStore(slot, at - 1, (_ZERO,))]))
            sink = _loop(Var("k", int64), end, IfThenElse(at > 0, move))
            return seq([BufferStore(slot, end, (_ZERO,)), sink, BufferStore(best, value, (at,))])

        def named(position: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
            value = Var("value", int64)
            return LetStmt(value, found.load(position), body(value))

        count = as_prim(self.count)
        fill = nest((count,), lambda i: named(i[0], lambda value: insert(value, i[0])))
        rest = nest((number.load(_ZERO) - count,), lambda i: named(
            count + i[0], lambda value: IfThenElse(value < best.load(last), insert(value, last))))
        put = nest((count,), lambda i: BufferStore(
            self.order, te.bitwise_and(best.load(i[0]), const(_LOW)), (*line, i[0])))
        return Allocate(best, Allocate(slot, seq([fill, rest, put])))


def _loop(var: Var, extent: PrimExpr | int, body: Stmt) -> Stmt:
    return For(var, _ZERO, as_prim(extent), ForKind.SERIAL, body)
