"""Stable radix sort of one line of numbers, from the least significant digit.

Numbers become unsigned keys in the same order: NaN above every number. One pass over the keys
counts all digits; a pass for each digit moves the keys to their places, and is skipped when all
keys have the same digit. The work is linear in the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.ir.dtype import DType, float32, int32, int64
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Var, all_of, as_prim, const, minimum, not_, select
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.topi.loop_nest import nest

_U32, _U64 = DType.of("uint32"), DType.of("uint64")
# Bits of a digit. With the 2048 destinations of 11 bits, passes miss the caches more often than
# there are fewer of them.
_DIGIT = 8
_ZERO, _ONE = as_prim(0), as_prim(1)

# The number at a position, and what is done with a rank and what was sorted.
Element = Callable[[PrimExpr], PrimExpr]
Emit = Callable[[PrimExpr, PrimExpr], Stmt]


def key_of(x: PrimExpr, *, is_ascend: bool) -> PrimExpr:
    """The unsigned key of a number, of 32 or 64 bits; equal zeros, and all NaNs, have one key."""
    if x.dtype.is_float:
        x = x if x.dtype.bits == 64 else x.astype(float32)
        unsigned = _unsigned(x.dtype)
        zero = const(0, x.dtype)
        bits = te.reinterpret(unsigned, select(x.equal(zero), zero, x))
        top, every = _top(unsigned), const((1 << unsigned.bits) - 1, unsigned)
        negative = te.bitwise_xor(bits, every)
        positive = te.bitwise_or(bits, top)
        key = select(te.isnan(x), every, select(bits >= top, negative, positive))
    else:
        signed = x.dtype.code == "int"
        wide = int64 if x.dtype.bits > 32 else int32
        unsigned = _unsigned(wide)
        own = x.astype(wide if signed else unsigned)
        key = te.bitwise_xor(te.reinterpret(unsigned, own), _top(unsigned)) if signed else own
    return key if is_ascend else te.bitwise_not(key)


def number_of(key: PrimExpr, dtype: DType, *, is_ascend: bool) -> PrimExpr:
    """The number that has a key."""
    key = key if is_ascend else te.bitwise_not(key)
    top = _top(key.dtype)
    if dtype.is_float:
        own = dtype if dtype.bits == 64 else float32
        bits = select(key >= top, te.bitwise_xor(key, top), te.bitwise_not(key))
        return te.reinterpret(own, bits).astype(dtype)
    if dtype.code == "int":
        wide = int64 if dtype.bits > 32 else int32
        return te.reinterpret(wide, te.bitwise_xor(key, top)).astype(dtype)
    return key.astype(dtype)


def sorted_positions(size: PrimExpr, count: PrimExpr, element: Element, emit: Emit, *,
                     is_ascend: bool = True, room: PrimExpr | None = None) -> Stmt:
    """``emit(rank, position)`` for the first ``count`` positions of the sorted order of ``size``.

    Keys of 32 bits share a word with their position. ``room`` bounds a size that data decide.
    """
    room = size if room is None else room

    def key(at: PrimExpr) -> PrimExpr:
        return key_of(element(at), is_ascend=is_ascend)

    if key(_ZERO).dtype == _U64:
        return _Lines(size, count, (_U64, int64), 0, room).loops(
            lambda at: (key(at), at), lambda rank, moved: emit(rank, moved[1]))

    def packed(at: PrimExpr) -> tuple[PrimExpr]:
        word = te.shift_left(key(at).astype(_U64), const(32, _U64))
        return (te.bitwise_or(word, at.astype(_U64)),)

    low = const((1 << 32) - 1, _U64)
    return _Lines(size, count, (_U64,), 32, room).loops(
        packed, lambda rank, moved: emit(rank, te.bitwise_and(moved[0], low).astype(int64)))


def sorted_numbers(size: PrimExpr, element: Element, emit: Emit, *, is_ascend: bool) -> Stmt:
    """``emit(rank, number)`` for the numbers in sorted order.

    The keys of integers tell the numbers. Those of floats do so but for zeros and NaNs, which
    differ by sign: a last pass puts each where it belongs (``EqualKeys``).
    """
    dtype = element(_ZERO).dtype

    def key(at: PrimExpr) -> tuple[PrimExpr]:
        return (key_of(element(at), is_ascend=is_ascend),)

    def put(rank: PrimExpr, moved: Sequence[PrimExpr]) -> Stmt:
        return emit(rank, number_of(moved[0], dtype, is_ascend=is_ascend))

    lines = _Lines(size, size, (key(_ZERO)[0].dtype,), 0, size)
    if not dtype.is_float:
        return lines.loops(key, put)
    equals = EqualKeys(element, emit, is_ascend)
    return equals.around(seq([lines.loops(key, put, equals.count), equals.restore(size)]))


class EqualKeys:
    """The floats of a line that differ but have one key: zeros and NaNs, in order of position."""

    def __init__(self, element: Element, emit: Emit, is_ascend: bool) -> None:
        self.element, self.emit, self.is_ascend = element, emit, is_ascend
        self.first = [Buffer(name, (_ONE,), int64, "local") for name in ("z", "n")]

    def count(self, at: PrimExpr) -> Stmt:
        """Of what goes before the zeros, and before the NaNs."""
        x = self.element(at)
        zero, numbers = const(0, x.dtype), not_(te.isnan(x))
        earlier = all_of(x < zero, numbers) if self.is_ascend else not_(x <= zero)
        found = [_add(self.first[0], earlier.astype(int64))]
        return seq([*found, _add(self.first[1], numbers.astype(int64))] if self.is_ascend
                   else found)

    def restore(self, size: PrimExpr) -> Stmt:
        """Put each where it belongs; all positions are counted."""

        def put(i: tuple[PrimExpr, ...]) -> Stmt:
            x = self.element(i[0])
            conditions = (x.equal(const(0, x.dtype)), te.isnan(x))
            return seq([IfThenElse(condition, seq([self.emit(first.load(_ZERO), x),
                                                   _add(first, _ONE)]))
                        for condition, first in zip(conditions, self.first, strict=True)])

        return nest((size,), put)

    def around(self, body: Stmt) -> Stmt:
        """``body`` with counters that start at zero."""
        clear = [BufferStore(one, const(0), (_ZERO,)) for one in self.first]
        return Allocate(self.first[0], Allocate(self.first[1], seq([*clear, body])))


def _add(counter: Buffer, number: PrimExpr) -> Stmt:
    return BufferStore(counter, counter.load(_ZERO) + number, (_ZERO,))


def _unsigned(dtype: DType) -> DType:
    return _U64 if dtype.bits == 64 else _U32


def _top(unsigned: DType) -> PrimExpr:
    return const(1 << (unsigned.bits - 1), unsigned)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Two lines for each of the ``moved`` dtypes; the key is the first, from bit ``lowest`` on."""

    size: PrimExpr
    count: PrimExpr
    moved: tuple[DType, ...]
    lowest: int
    room: PrimExpr

    @property
    def digits(self) -> int:
        return (self.moved[0].bits - self.lowest) // _DIGIT

    def loops(self, start: Callable[[PrimExpr], Sequence[PrimExpr]],
              emit: Callable[[PrimExpr, Sequence[PrimExpr]], Stmt],
              also: Callable[[PrimExpr], Stmt] | None = None) -> Stmt:
        """``start`` gives what is moved of a position; ``also`` sees every position first."""
        lines = [Buffer(f"line{k}", (as_prim(2), self.room), d) for k, d in enumerate(self.moved)]
        counts = Buffer("counts", (as_prim(self.digits), as_prim(1 << _DIGIT)), int64)
        half = Buffer("half", (_ONE,), int64)  # the line that the last pass wrote

        def first(i: tuple[PrimExpr, ...]) -> Stmt:
            key = Var("key", self.moved[0])
            values = start(i[0])
            stores = [BufferStore(line, value, (_ZERO, i[0])) for line, value in
                      zip(lines, (key, *values[1:]), strict=True)]
            tallies = [_tally(counts, as_prim(k), self._digit_of(key, as_prim(k)))
                       for k in range(self.digits)]
            return LetStmt(key, values[0], seq([also(i[0]) if also else None, *stores, *tallies]))

        number = Var("number", int64)
        passes = For(number, _ZERO, as_prim(self.digits), ForKind.SERIAL,
                     self._one_pass(lines, counts, half, number))
        done = half.load(_ZERO)
        finish = nest((self.count,),
                      lambda i: emit(i[0], [line.load(done, i[0]) for line in lines]))
        body = seq([nest(counts.shape, lambda i: BufferStore(counts, const(0), i)),
                    BufferStore(half, const(0), (_ZERO,)), nest((self.size,), first),
                    passes, finish])
        for buffer in (half, counts, *lines):
            body = Allocate(buffer, body)
        return body

    def _digit_of(self, key: PrimExpr, number: PrimExpr) -> PrimExpr:
        shift = (number * _DIGIT + self.lowest).astype(key.dtype)
        shifted = te.shift_right(key, shift)
        return te.bitwise_and(shifted, const((1 << _DIGIT) - 1, key.dtype)).astype(int64)

    def _one_pass(self, lines: Sequence[Buffer], counts: Buffer, half: Buffer,
                  number: PrimExpr) -> Stmt:
        """Move all to the other line in the order of one digit."""
        source, total = Var("source", int64), Buffer("total", (_ONE,), int64, "local")

        def begin(i: tuple[PrimExpr, ...]) -> Stmt:
            """Counts become the places where the digits begin."""
            found = Var("found", int64)
            return LetStmt(found, counts.load(number, i[0]), seq([
                BufferStore(counts, total.load(_ZERO), (number, i[0])),
                BufferStore(total, total.load(_ZERO) + found, (_ZERO,))]))

        def move(i: tuple[PrimExpr, ...]) -> Stmt:
            at, digit, key = Var("at", int64), Var("digit", int64), Var("key", self.moved[0])
            values = [key, *(line.load(source, i[0]) for line in lines[1:])]
            stores = [BufferStore(line, value, (1 - source, at))
                      for line, value in zip(lines, values, strict=True)]
            step = LetStmt(at, counts.load(number, digit), seq([
                BufferStore(counts, at + 1, (number, digit)), *stores]))
            return LetStmt(key, lines[0].load(source, i[0]),
                           LetStmt(digit, self._digit_of(key, number), step))

        work = Allocate(total, seq([
            BufferStore(total, const(0), (_ZERO,)),
            nest((counts.shape[1],), begin), nest((self.size,), move),
            BufferStore(half, 1 - source, (_ZERO,))]))
        # An empty line has no first key; its loops do nothing, so the pass is skipped as well.
        return For(Var("once", int64), _ZERO, minimum(self.size, 1), ForKind.SERIAL,
                   LetStmt(source, half.load(_ZERO), IfThenElse(
                       counts.load(number, self._digit_of(lines[0].load(source, _ZERO), number))
                       < self.size, work)))


def _tally(counts: Buffer, row: PrimExpr, digit: PrimExpr) -> Stmt:
    at = Var("digit", int64)
    return LetStmt(at, digit, BufferStore(counts, counts.load(row, at) + 1, (row, at)))
