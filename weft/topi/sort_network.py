"""Sorting by bitonic networks of vectors: lines side by side in lanes, or one line in many lanes.

Every comparator exchanges whole vectors: lane l of row i with lane l of row j. Lines that lie side
by side take a lane each, so that no element leaves its lane. A single line is cut into chunks;
the lanes of a chunk are sorted as if they were lines, transposed to sorted runs, and merged.
All comparators put the smaller element first (Batcher 1968, with the second run mirrored), so that
the largest keys pad a size which is no power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.ir.dtype import DType, float32, int32, int64
from weft.support.dataclass import dataclass
from weft.tir import (
    Broadcast,
    Buffer,
    PrimExpr,
    Ramp,
    Shuffle,
    Var,
    any_of,
    as_prim,
    const,
    maximum,
    minimum,
    select,
)
from weft.tir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.topi.shuffles import exchange_quadrants

# Vectors that are exchanged between a load and a store, in three stages; and their logarithm.
_BLOCK, _STAGES = 8, 3
# The comparators that sort eight values: 19 in six stages, the fewest (Knuth, vol. 3, 5.3.4).
_SORT_EIGHT = ((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3),
               (4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6))
_SHUFFLED = 128  # bits, within which shuffles of two vectors are one instruction
Rows = Callable[[PrimExpr], Stmt]


def lane_dtype(dtype: DType) -> DType:
    """The signed integers in whose order numbers of ``dtype`` sort."""
    return int64 if dtype.bits > 32 else int32


def signed_key(x: PrimExpr, *, is_ascend: bool) -> PrimExpr:
    """The signed integer in whose order a number sorts: -0 just before 0, all NaNs the largest."""
    kind = lane_dtype(x.dtype)
    if x.dtype.is_float:
        x = x if x.dtype.bits == kind.bits else x.astype(float32)
        bits = te.reinterpret(kind.vector(x.dtype.lanes), x)
        key = select(te.isnan(x), largest_key(kind, x.dtype.lanes), _magnitude_flipped(bits))
    elif x.dtype.code == "int":
        key = x.astype(kind)
    else:
        unsigned = DType.of(f"uint{kind.bits}")
        key = te.bitwise_xor(
            te.reinterpret(kind.vector(x.dtype.lanes), x.astype(unsigned)), _lowest(x, kind))
    return key if is_ascend else te.bitwise_not(key)


def number_of_signed(key: PrimExpr, dtype: DType, *, is_ascend: bool) -> PrimExpr:
    """The number that has a key; of NaNs, some NaN."""
    key = key if is_ascend else te.bitwise_not(key)
    lanes = key.dtype.lanes
    if dtype.is_float:
        own = DType.of(f"float{key.dtype.bits}").vector(lanes)
        return te.reinterpret(own, _magnitude_flipped(key)).astype(dtype)
    if dtype.code == "int":
        return key.astype(dtype)
    unsigned = DType.of(f"uint{key.dtype.bits}").vector(lanes)
    return te.reinterpret(unsigned, te.bitwise_xor(key, _lowest(key, key.dtype.element))
                          ).astype(dtype)


def differs_in_sign(x: PrimExpr) -> PrimExpr:
    """Whether keys do not tell a float: NaN, or -0."""
    kind = lane_dtype(x.dtype)
    x = x if x.dtype.bits == kind.bits else x.astype(float32)
    bits = te.reinterpret(kind.vector(x.dtype.lanes), x)
    return any_of(te.isnan(x), bits.equal(_lowest(x, kind)))


def _magnitude_flipped(bits: PrimExpr) -> PrimExpr:
    """The bits of floats as integers in their order, and back."""
    kind, lanes = bits.dtype.element, bits.dtype.lanes
    sign = te.shift_right(bits, _filled(kind, lanes, kind.bits - 1))
    return te.bitwise_xor(bits, te.bitwise_and(sign, largest_key(kind, lanes)))


def largest_key(kind: DType, lanes: int) -> PrimExpr:
    """What no key exceeds."""
    return _filled(kind, lanes, (1 << (kind.bits - 1)) - 1)


def _lowest(x: PrimExpr, kind: DType) -> PrimExpr:
    return _filled(kind, x.dtype.lanes, -(1 << (kind.bits - 1)))


def _filled(kind: DType, lanes: int, value: int) -> PrimExpr:
    one = const(value, kind)
    return one if lanes == 1 else Broadcast(one, lanes)


class Registers:
    """Vectors between a load and a store, and the names of those computed from them."""

    def __init__(self, values: Sequence[PrimExpr]) -> None:
        self._bound: list[tuple[Var, PrimExpr]] = []
        self.vectors = [self.let(value) for value in values]

    def let(self, value: PrimExpr) -> Var:
        var = Var("v", value.dtype)
        self._bound.append((var, value))
        return var

    def exchange(self, i: int, j: int) -> None:
        """Smaller elements to vector ``i``, larger to vector ``j``."""
        a, b = self.vectors[i], self.vectors[j]
        self.vectors[i], self.vectors[j] = self.let(minimum(a, b)), self.let(maximum(a, b))

    def sort_eights(self) -> None:
        """Sort each lane of each eight vectors."""
        for first in range(0, len(self.vectors), _BLOCK):
            for i, j in _SORT_EIGHT:
                self.exchange(first + i, first + j)

    def merge(self, *, is_mirrored: bool) -> None:
        """Half-cleaners of all distances; the first compares with the mirrored second half."""
        size = len(self.vectors)
        if is_mirrored:
            for i in range(size // 2):
                self.exchange(i, size - 1 - i)
        distance = size // 4 if is_mirrored else size // 2
        while distance:
            for i in range(size):
                if not i & distance:
                    self.exchange(i, i + distance)
            distance //= 2

    def merge_lanes(self) -> None:
        """Half-cleaners of all distances within vectors, two of which exchange their halves."""
        lanes = self.vectors[0].dtype.lanes
        block = max(1, _SHUFFLED // self.vectors[0].dtype.bits)
        for first in range(0, len(self.vectors), 2):
            held = [[(v, i) for i in range(lanes)] for v in (0, 1)]
            distance = lanes // 2
            while distance:
                pair = (self.vectors[first], self.vectors[first + 1])
                # The elements that are compared come to one lane of both vectors.
                group = block if distance < block else lanes
                low = [v * lanes + at + i for at in range(0, lanes, group) for v in (0, 1)
                       for i in range(group) if not held[v][at + i][1] & distance]
                high = [v * lanes + at + i for at in range(0, lanes, group) for v in (0, 1)
                        for i in range(group) if held[v][at + i][1] & distance]
                held = [[held[i // lanes][i % lanes] for i in half] for half in (low, high)]
                for k, half in enumerate((low, high)):
                    self.vectors[first + k] = self.let(Shuffle(pair, tuple(half)))
                self.exchange(first, first + 1)
                distance //= 2
            position = {element: i for i, element in enumerate(held[0] + held[1])}
            pair = (self.vectors[first], self.vectors[first + 1])
            for v in (0, 1):
                self.vectors[first + v] = self.let(Shuffle(
                    pair, tuple(position[v, i] for i in range(lanes))))

    def mirror(self, numbers: Sequence[int]) -> None:
        """Reverse the lanes of some vectors."""
        for i in numbers:
            lanes = self.vectors[i].dtype.lanes
            self.vectors[i] = self.let(Shuffle((self.vectors[i],), tuple(range(lanes))[::-1]))

    def transpose(self, scale: int = 1) -> None:
        """Swap the off-diagonal quadrants at each distance of vectors that are rows of a square.

        The rows are ``scale`` apart. As many vectors as lanes are transposed; fewer in two passes:
        of adjacent rows, and of rows as far apart as there were adjacent ones.
        """
        between = len(self.vectors)
        while between := between // 2:
            distance = between * scale
            for i in range(len(self.vectors)):
                if not i & between:
                    low, high = exchange_quadrants(
                        self.vectors[i], self.vectors[i + between], distance)
                    self.vectors[i] = self.let(low)
                    self.vectors[i + between] = self.let(high)

    def across(self, vector: PrimExpr, combine: Callable[[PrimExpr, PrimExpr], PrimExpr]
               ) -> PrimExpr:
        """The combination of all lanes."""
        distance = vector.dtype.lanes // 2
        while distance:
            swap = tuple(i ^ distance for i in range(vector.dtype.lanes))
            vector = self.let(combine(vector, Shuffle((vector,), swap)))
            distance //= 2
        return Shuffle((vector,), (0,))

    def around(self, *stmts: Stmt | None) -> Stmt:
        """Statements that use the names."""
        body = seq(stmts)
        for var, value in reversed(self._bound):
            body = LetStmt(var, value, body)
        return body


@dataclass(frozen=True, slots=True)
class Network:
    """Merges of rows of ``lanes`` in ``memory``.

    Without ``is_dense`` each lane holds a line of its own; with it the elements of a row follow
    one another in one line. Blocks of ``2**near`` rows stay in the first level of cache.
    """

    memory: Buffer
    lanes: int
    near: int
    is_dense: bool = False

    def row(self, number: PrimExpr) -> Ramp:
        return Ramp(number * self.lanes, const(1), self.lanes)

    def load(self, number: PrimExpr) -> PrimExpr:
        return self.memory.load(self.row(number))

    def store(self, number: PrimExpr, value: PrimExpr) -> Stmt:
        return BufferStore(self.memory, value, (self.row(number),))

    def merges(self, start: PrimExpr, rows: PrimExpr, first: int, last: int) -> Stmt:
        """Sort ``rows`` from sorted runs of ``2**(first - 1)`` rows to runs of ``2**last``."""
        if last <= self.near:
            level = Var("level", int64)
            return _loop(level, first, last - first + 1, seq([
                self._passes(start, rows, level, as_prim(0), _number_of_passes(level), first),
                self._finish(start, rows) if self.is_dense else None]))
        # One copy of the code: first iterations sort a block each, later ones merge to one level.
        iteration, level, part = Var("iteration", int64), Var("level", int64), Var("part", int64)
        names = [Var(name, int64) for name in ("blocks", "begin", "extent", "far", "at", "size")]
        blocks, begin, extent, far, at, size = names
        whole, step = iteration >= blocks, as_prim(1 << self.near)
        is_block = any_of(part > 0, iteration < blocks)  # else the passes that exceed a block
        passes = seq([
            self._passes(at, size, level, select(part > 0, far, 0),
                         select(is_block, _number_of_passes(level), far), first),
            IfThenElse(is_block, self._finish(at, size)) if self.is_dense else None])
        near_at = select(part.equal(0), begin, begin + (part - 1) * step)
        near_size = select(part.equal(0), extent, minimum(step, extent - (part - 1) * step))
        passes = LetStmt(at, near_at, LetStmt(size, near_size, passes))
        distant = maximum(_number_of_passes(level - self.near), 0)
        body = LetStmt(far, distant, _loop(part, 0, select(whole, blocks + 1, 1), passes))
        lowest = select(whole, iteration - blocks + self.near + 1, first)
        levels = For(level, lowest, select(whole, as_prim(1), self.near - first + 1),
                     ForKind.SERIAL, body)
        for name, value in (
                (extent, select(whole, rows, minimum(step, rows - iteration * step))),
                (begin, select(whole, start, start + iteration * step))):
            levels = LetStmt(name, value, levels)
        return LetStmt(blocks, _shifted_up(rows, as_prim(self.near)), _loop(
            iteration, 0, blocks + (last - self.near), levels))

    def _passes(self, start: PrimExpr, rows: PrimExpr, level: PrimExpr, begin: PrimExpr,
                end: PrimExpr, lowest: int) -> Stmt:
        """The passes from ``begin`` to ``end`` of a merge to runs of ``2**level`` rows.

        A pass takes three stages. The last takes again what the one before it took if there are
        fewer: stages that are repeated exchange nothing. ``lowest`` is the least level.
        """
        number, shift = Var("pass", int64), Var("shift", int64)
        body = IfThenElse(number.equal(0), self._exchanges(start, rows, shift, _STAGES,
                                                           is_mirrored=True),
                          self._exchanges(start, rows, shift, _STAGES, is_mirrored=False))
        body = LetStmt(shift, maximum(level - (number + 1) * _STAGES, 0), body)
        for stages in range(lowest, _STAGES):
            few = self._exchanges(start, rows, as_prim(0), stages, is_mirrored=True)
            body = IfThenElse(level.equal(stages), few, body)
        return For(number, begin, end - begin, ForKind.SERIAL, body)

    def _exchanges(self, start: PrimExpr, rows: PrimExpr, shift: PrimExpr, stages: int, *,
                   is_mirrored: bool) -> Stmt:
        """Exchange rows that are ``2**shift`` apart, in blocks of ``2**(shift + stages)``."""
        size, step = 1 << stages, Var("step", int64)
        iteration, i, row, mirrored = (
            Var(name, int64) for name in ("iteration", "i", "row", "mirrored"))
        offsets = [Var("offset", int64) for _ in range(size)]
        bases = [row] * size
        if is_mirrored:
            bases[size // 2:] = [mirrored] * (size // 2)
        at = [Ramp(base + offset, const(1), self.lanes)
              for base, offset in zip(bases, offsets, strict=True)]
        registers = Registers([self.memory.load(ramp) for ramp in at])
        upper = range(size // 2, size) if is_mirrored and self.is_dense else ()
        registers.mirror(upper)
        registers.merge(is_mirrored=is_mirrored)
        registers.mirror(upper)
        body = registers.around(*(BufferStore(self.memory, vector, (ramp,))
                                  for ramp, vector in zip(at, registers.vectors, strict=True)))
        first = start + (iteration - i) * size
        for name, value in ((mirrored, (first + (step - 1 - i)) * self.lanes),
                            (row, (first + i) * self.lanes),
                            (i, te.bitwise_and(iteration, step - 1))):
            body = body if name is mirrored and not is_mirrored else LetStmt(name, value, body)
        # One loop over all blocks: those of the last passes have a row each.
        iterations = te.shift_left(_shifted_up(rows, shift + stages), shift)
        body = _loop(iteration, 0, iterations, body)
        for q, offset in enumerate(offsets):
            body = LetStmt(offset, step * (q * self.lanes), body)
        return LetStmt(step, te.shift_left(as_prim(1), shift), body)

    def _finish(self, start: PrimExpr, rows: PrimExpr) -> Stmt:
        """The stages within vectors, of four at once."""
        at = Var("at", int64)
        numbers = [start + at * 4 + q for q in range(4)]
        registers = Registers([self.load(number) for number in numbers])
        registers.merge_lanes()
        return _loop(at, 0, te.shift_right(rows, as_prim(2)), registers.around(*(
            self.store(number, vector)
            for number, vector in zip(numbers, registers.vectors, strict=True))))


def _number_of_passes(level: PrimExpr) -> PrimExpr:
    return (level + _STAGES - 1) // _STAGES


def _shifted_up(size: PrimExpr, shift: PrimExpr) -> PrimExpr:
    """``size / 2**shift``, rounded up."""
    return te.shift_right(size + te.shift_left(as_prim(1), shift) - 1, shift)


def _loop(var: Var, start: int, extent: PrimExpr | int, body: Stmt) -> Stmt:
    return For(var, as_prim(start), as_prim(extent), ForKind.SERIAL, body)
