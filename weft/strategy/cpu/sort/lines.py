"""The loops that sort lines of a fixed size by networks of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir import (
    Broadcast,
    Buffer,
    BufferLoad,
    PrimExpr,
    Ramp,
    any_of,
    as_prim,
    const,
    int_value,
    maximum,
    minimum,
    select,
)
from weft.tir.row_major import unravel
from weft.tir.stmt import Allocate, BufferStore, IfThenElse, Stmt, seq
from weft.topi.loop_nest import nest
from weft.topi.radix_sort import EqualKeys
from weft.topi.sort_network import (
    Network,
    Registers,
    differs_in_sign,
    lane_dtype,
    largest_key,
    number_of_signed,
    signed_key,
)

_ZERO, _ONE = as_prim(0), as_prim(1)
_STAGES, _EIGHT = 3, 8  # comparators in registers sort eight rows: the first three stages
_AT_ONCE = 8  # vectors that are transposed in registers
Index = tuple[PrimExpr, ...]
Round = tuple[Registers, Sequence[Stmt]]  # vectors, and statements besides their stores


@dataclass(frozen=True, slots=True)
class Plan:
    """How lines are sorted: side by side in lanes, or one by one in chunks of ``2**chunk`` rows.

    ``near`` is the logarithm of the rows that stay in the first level of cache.
    """

    lanes: int
    near: int
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class LineSort:
    """Sorts the lines of ``source`` along ``axis``, which is the last or the one before vectors."""

    source: Buffer
    target: Buffer
    axis: int
    is_ascend: bool
    plan: Plan

    def loops(self) -> Stmt:
        if self.plan.chunk is not None:
            return self._parallel(self.outer, self._one_line, 1)
        if self.axis == self.source.ndim - 1:
            return self._parallel((as_prim(-(-self.lines // self.lanes)),), self._rows, self.lanes)
        groups = as_prim(-(-self.last // self.lanes))
        return self._parallel((*self.outer[:-1], groups), self._columns, self.lanes)

    @property
    def lanes(self) -> int:
        return self.plan.lanes

    @property
    def size(self) -> int:
        return self._sizes[self.axis]

    @property
    def last(self) -> int:
        return self._sizes[-1]

    @property
    def outer(self) -> tuple[PrimExpr, ...]:
        return (*self.source.shape[:self.axis], *self.source.shape[self.axis + 1:])

    @property
    def lines(self) -> int:
        return math.prod(self._sizes) // self.size

    @property
    def kind(self) -> DType:
        return lane_dtype(self.source.dtype)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(int_value(size) or 0 for size in self.source.shape)

    def _parallel(self, shape: Sequence[PrimExpr], body: Callable[[Index], Stmt], lines: int
                  ) -> Stmt:
        """``body`` sorts as many ``lines``."""
        work = lines * self.size * self.size.bit_length()
        return nest(tuple(shape), body, independent=True, work=work)

    def _beside(self, line: Callable[[PrimExpr], Index], count: PrimExpr,
                fill: Callable[[Lines], Stmt], empty: Callable[[Lines], Stmt]) -> Stmt:
        """A line in each lane: fill memory with their keys, sort it, and store what it holds."""
        levels = max(_STAGES, (self.size - 1).bit_length())
        memory = Lines.of(self.kind, self.plan, 1 << levels)
        sort = seq([memory.pad(_up(self.size, _EIGHT), 1 << levels),
                    memory.network.merges(_ZERO, as_prim(_up(self.size, _EIGHT)), _STAGES + 1,
                                          levels)])
        return memory.around(seq([fill(memory), sort, empty(memory),
                                  self._restore(memory, line, count)]))

    def _columns(self, group: Index) -> Stmt:
        """Adjacent lines: each row of the memory is a vector of the tensor."""
        *outer, number = group
        column = Ramp(number * self.lanes, _ONE, self.lanes)
        within = column < self.last if self.last % self.lanes else None

        def at(position: PrimExpr) -> Index:
            return (*outer[:self.axis], position, *outer[self.axis:], column)

        def eight(memory: Lines, first: PrimExpr, count: int) -> Stmt:
            rows = [first + q for q in range(_EIGHT)]
            loads = [BufferLoad(self.source, at(row), within) for row in rows[:count]]
            return self._take(memory, rows, loads)

        def fill(memory: Lines) -> Stmt:
            full, rest = divmod(self.size, _EIGHT)
            return seq([nest((as_prim(full),), lambda i: eight(memory, i[0] * _EIGHT, _EIGHT)),
                        eight(memory, as_prim(full * _EIGHT), rest) if rest else None])

        def empty(memory: Lines) -> Stmt:
            return nest((as_prim(self.size),), lambda i: BufferStore(
                self.target, self._number(memory.network.load(i[0])), at(i[0]), within))

        return self._beside(lambda lane: (*outer, number * self.lanes + lane),
                            minimum(as_prim(self.lanes), self.last - number * self.lanes), fill,
                            empty)

    def _rows(self, group: Index) -> Stmt:
        """Lines apart: squares of the tensor are transposed to rows of the memory, and back."""
        start = group[0] * self.lanes

        def line(lane: PrimExpr) -> Index:
            return self._unflattened(start + lane)

        def vectors(lane: PrimExpr, position: PrimExpr) -> Index:
            return (*self._unflattened(minimum(start + lane, self.lines - 1)),
                    Ramp(position, _ONE, self.lanes))

        def fill(memory: Lines) -> Stmt:
            def square(position: PrimExpr) -> Stmt:
                return self._transposed(
                    lambda lanes: self._keys(memory, [self.source.load(*vectors(lane, position))
                                                      for lane in lanes]),
                    lambda k, vector: memory.network.store(position + k, vector))
            # The last squares may overlap: the rows are sorted when all are there.
            return seq([self._squares(square), memory.pad(self.size, _up(self.size, _EIGHT)),
                        memory.sort_eights(self.size)])

        def empty(memory: Lines) -> Stmt:
            def square(position: PrimExpr) -> Stmt:
                return self._transposed(
                    lambda rows: (Registers([self._number(memory.network.load(position + k))
                                             for k in rows]), ()),
                    lambda lane, vector: self._inside(start + lane, BufferStore(
                        self.target, vector, vectors(lane, position))))
            return self._squares(square)

        return self._beside(line, minimum(as_prim(self.lanes), self.lines - start), fill, empty)

    def _squares(self, square: Callable[[PrimExpr], Stmt]) -> Stmt:
        """All positions of lines, as many at once as there are lanes; the last may overlap."""
        last = as_prim(self.size - self.lanes)
        return nest((as_prim(-(-self.size // self.lanes)),),
                    lambda i: square(minimum(i[0] * self.lanes, last)))

    def _inside(self, line: PrimExpr, stmt: Stmt) -> Stmt:
        return IfThenElse(line < self.lines, stmt) if self.lines % self.lanes else stmt

    def _unflattened(self, number: PrimExpr) -> Index:
        """The index of a line, of those along the last axis."""
        return unravel(number, self._sizes[:-1])

    def _one_line(self, line: Index) -> Stmt:
        """Chunks whose lanes are sorted and transposed to runs; then runs are merged."""
        chunk, width = 1 << (self.plan.chunk or 0), self.lanes.bit_length() - 1
        rows = _up(-(-self.size // self.lanes), chunk)
        levels = (rows - 1).bit_length()
        part = Lines.of(self.kind, self.plan, chunk)
        whole = Lines.of(self.kind, self.plan, 1 << levels, is_dense=True)
        last = chunk.bit_length() - 1

        def sort(c: Index) -> Stmt:
            first = c[0] * chunk
            def eight(i: Index) -> Stmt:
                rows = [i[0] * _EIGHT + q for q in range(_EIGHT)]
                return self._take(part, rows, *self._loads(line, [first + row for row in rows]))

            def square(i: Index) -> Stmt:
                return self._transposed(
                    lambda rows: (Registers([part.network.load(i[0] * self.lanes + k)
                                             for k in rows]), ()),
                    lambda lane, vector: whole.network.store(
                        first + lane * (chunk // self.lanes) + i[0], vector))

            return seq([nest((as_prim(chunk // _EIGHT),), eight),
                        part.network.merges(_ZERO, as_prim(chunk), _STAGES + 1, last),
                        nest((as_prim(chunk // self.lanes),), square)])

        def put(i: Index) -> Stmt:
            at = Ramp(i[0] * self.lanes, _ONE, self.lanes)
            return BufferStore(self.target, self._number(whole.network.load(i[0])),
                               (*line, at), self._within(at))

        merge = whole.network.merges(_ZERO, as_prim(rows), last - width + 1, levels)
        body = seq([nest((as_prim(rows // chunk),), sort), whole.pad(rows, 1 << levels), merge,
                    nest((as_prim(-(-self.size // self.lanes)),), put),
                    self._restore(part, lambda _: line, _ONE)])
        return part.around(whole.around(body))

    def _within(self, at: PrimExpr) -> PrimExpr | None:
        return at < self.size if self.size % self.lanes else None

    def _loads(self, line: Index, rows: Sequence[PrimExpr]
               ) -> tuple[Sequence[PrimExpr], Sequence[PrimExpr] | None]:
        """Rows of a line, and which of their lanes are inside."""
        at = [Ramp(row * self.lanes, _ONE, self.lanes) for row in rows]
        padded = self.size % (self.lanes << (self.plan.chunk or 0))
        within = [ramp < self.size for ramp in at] if padded else None
        return [BufferLoad(self.source, (*line, ramp), inside)
                for ramp, inside in zip(at, within or [None] * len(at), strict=True)], within

    def _take(self, memory: Lines, rows: Sequence[PrimExpr], loads: Sequence[PrimExpr],
              within: Sequence[PrimExpr] | None = None) -> Stmt:
        """Store the keys of loaded vectors, sorted; rows without a load have the largest keys."""
        registers, found = self._keys(memory, loads, within)
        largest = registers.let(largest_key(self.kind, self.lanes))
        registers.vectors += [largest] * (len(rows) - len(loads))
        registers.sort_eights()
        return registers.around(*(memory.network.store(row, key) for row, key in
                                  zip(rows, registers.vectors, strict=True)), *found)

    def _keys(self, memory: Lines, loads: Sequence[PrimExpr],
              within: Sequence[PrimExpr] | None = None) -> Round:
        """The keys of loaded vectors; notes those of the vectors that their keys do not tell."""
        registers, found = Registers(loads), []
        if self.source.dtype.is_float:
            unlike = any_of(*map(differs_in_sign, registers.vectors))
            seen = select(unlike, const(1, self.kind), memory.signs.load(memory.lane))
            found = [BufferStore(memory.signs, seen, (memory.lane,))]
        keys = [signed_key(x, is_ascend=self.is_ascend) for x in registers.vectors]
        if within is not None:
            largest = largest_key(self.kind, self.lanes)
            keys = [select(inside, key, largest)
                    for inside, key in zip(within, keys, strict=True)]
        registers.vectors = [registers.let(key) for key in keys]
        return registers, found

    def _transposed(self, load: Callable[[Sequence[PrimExpr]], Round],
                    store: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """Load rows of a square of as many as there are lanes, and store its columns.

        Large squares take two passes over memory: the code is a quarter of that of one.
        """
        if self.lanes <= _AT_ONCE:
            rows = [as_prim(k) for k in range(self.lanes)]
            registers, stmts = load(rows)
            registers.transpose()
            return registers.around(*map(store, rows, registers.vectors), *stmts)
        few = 1 << (self.lanes.bit_length() - 1) // 2
        many = self.lanes // few
        dtype = load([_ZERO])[0].vectors[0].dtype.element
        square = Buffer("square", (as_prim(self.lanes * self.lanes),), dtype)

        def at(row: PrimExpr) -> Ramp:
            return Ramp(row * self.lanes, _ONE, self.lanes)

        def adjacent(i: Index) -> Stmt:
            rows = [i[0] * few + q for q in range(few)]
            registers, stmts = load(rows)
            registers.transpose()
            return registers.around(*(BufferStore(square, vector, (at(row),)) for row, vector in
                                      zip(rows, registers.vectors, strict=True)), *stmts)

        def distant(i: Index) -> Stmt:
            rows = [i[0] + q * few for q in range(many)]
            registers = Registers([square.load(at(row)) for row in rows])
            registers.transpose(few)
            return registers.around(*map(store, rows, registers.vectors))

        return Allocate(square, seq([nest((as_prim(many),), adjacent),
                                     nest((as_prim(few),), distant)]))

    def _number(self, key: PrimExpr) -> PrimExpr:
        return number_of_signed(key, self.source.dtype, is_ascend=self.is_ascend)

    def _restore(self, memory: Lines, line: Callable[[PrimExpr], Index],
                 count: PrimExpr) -> Stmt | None:
        """Put zeros and NaNs where they belong, in the rare lines that have -0 or NaN."""
        if not self.source.dtype.is_float:
            return None

        def restore(i: Index) -> Stmt:
            before = line(i[0])

            def index(position: PrimExpr) -> Index:
                return (*before[:self.axis], position, *before[self.axis:])

            equals = EqualKeys(lambda at: self.source.load(*index(at)),
                               lambda rank, x: BufferStore(self.target, x, index(rank)),
                               self.is_ascend)
            size = as_prim(self.size)
            return equals.around(seq([nest((size,), lambda k: equals.count(k[0])),
                                      equals.restore(size)]))

        registers = Registers([memory.signs.load(memory.lane)])
        seen = registers.across(registers.vectors[0], maximum)
        return registers.around(IfThenElse(seen > const(0, self.kind), nest((count,), restore)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Room for rows of keys, and of each lane whether it had a float that its key does not tell."""

    network: Network
    signs: Buffer

    @staticmethod
    def of(kind: DType, plan: Plan, rows: int, *, is_dense: bool = False) -> Lines:
        memory = Buffer("keys", (as_prim(rows * plan.lanes),), kind)
        return Lines(Network(memory, plan.lanes, plan.near, is_dense),
                     Buffer("signs", (as_prim(plan.lanes),), kind, "local"))

    @property
    def lane(self) -> Ramp:
        return Ramp(_ZERO, _ONE, self.network.lanes)

    def around(self, body: Stmt) -> Stmt:
        kind = self.signs.dtype
        clear = None if self.network.is_dense else BufferStore(
            self.signs, Broadcast(const(0, kind), self.network.lanes), (self.lane,))
        body = Allocate(self.network.memory, seq([clear, body]))
        return body if self.network.is_dense else Allocate(self.signs, body)

    def pad(self, first: int, end: int) -> Stmt | None:
        """The largest keys from row ``first`` to ``end``."""
        largest = largest_key(self.signs.dtype, self.network.lanes)
        return None if first == end else nest(
            (as_prim(end - first),), lambda i: self.network.store(i[0] + first, largest))

    def sort_eights(self, rows: int) -> Stmt:
        """Sort the lanes of each eight rows."""

        def eight(i: Index) -> Stmt:
            at = [i[0] * _EIGHT + q for q in range(_EIGHT)]
            registers = Registers([self.network.load(row) for row in at])
            registers.sort_eights()
            return registers.around(*(self.network.store(row, vector) for row, vector in
                                      zip(at, registers.vectors, strict=True)))

        return nest((as_prim(_up(rows, _EIGHT) // _EIGHT),), eight)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
