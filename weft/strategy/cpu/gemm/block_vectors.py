"""Blocks of many rows at once, as vectors: bytes of quants, and scales with a row per lane.

A register has ``L`` parts of 128 bits. Vector ``i`` of four holds 16 quants of row ``4 * l + i`` in
part ``l``, so that adding or transposing the parts of the four leaves the rows in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import te
from weft.ir.dtype import DType, float32, int32
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.tir import Buffer, LetStmt, PrimExpr, Ramp, Shuffle, Stmt, Var, const
from weft.tir.expr import Broadcast, call
from weft.topi.nn.block_formats import RUN

QUARTERS = 4  # vectors whose parts are the runs of all rows of a panel
_WORD = 4
_BITS = 8  # of a byte


class Lets:
    """Vectors by name, in the order of their computation, around a statement."""

    def __init__(self) -> None:
        self._bound: list[tuple[Var, PrimExpr]] = []

    def named(self, value: PrimExpr, name: str = "v") -> PrimExpr:
        """A variable of this value."""
        self._bound.append((Var(name, value.dtype), value))
        return self._bound[-1][0]

    def around(self, body: Stmt) -> Stmt:
        """``body`` with all variables in scope."""
        for var, value in reversed(self._bound):
            body = LetStmt(var, value, body)
        return body


def consecutive(buffer: Buffer, leading: tuple[PrimExpr, ...], first: PrimExpr, lanes: int
                ) -> PrimExpr:
    """``lanes`` neighbours of a row of ``buffer``."""
    return buffer.load(*leading, Ramp(first, const(1), lanes))


def joined(parts: Sequence[PrimExpr]) -> PrimExpr:
    """One vector of the parts, a power of two of them."""
    level = list(parts)
    while len(level) > 1:
        lanes = level[0].dtype.lanes
        both = tuple(range(2 * lanes))
        level = [Shuffle((a, b), both) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def repeated(vector: PrimExpr, times: int) -> PrimExpr:
    """A vector that holds ``vector`` several times."""
    if times == 1:
        return vector
    return Shuffle((vector,), tuple(range(vector.dtype.lanes)) * times)


def as_type(vector: PrimExpr, dtype: str) -> PrimExpr:
    """The bits of a vector as lanes of another width."""
    element = DType.of(dtype)
    bits = vector.dtype.bits * vector.dtype.lanes
    return te.reinterpret(element.vector(bits // element.bits), vector)


def transposed(quarters: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Four vectors of bytes as vectors of four bytes per row: word ``j`` of all rows is ``[j]``."""
    a, b, c, d = (as_type(vector, "int32") for vector in quarters)
    lanes = a.dtype.lanes

    def merged(x: PrimExpr, y: PrimExpr, *picks: int) -> PrimExpr:
        # Picks below 4 are lanes of ``x``, others of ``y``, in each part.
        return Shuffle((x, y), tuple(part + pick % 4 + (pick // 4) * lanes
                                     for part in range(0, lanes, 4) for pick in picks))

    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    halves = [(merged(a, b, *picks), merged(c, d, *picks)) for picks in (low, high)]
    return [as_type(merged(x, y, *picks), str(quarters[0].dtype.element))
            for x, y in halves for picks in ((0, 1, 4, 5), (2, 3, 6, 7))]


def row_sums(quarters: Sequence[PrimExpr]) -> PrimExpr:
    """The sums of the four lanes of each part, a row per lane."""
    lanes = quarters[0].dtype.lanes

    def halved(x: PrimExpr, y: PrimExpr) -> PrimExpr:
        even, odd = (tuple(part + pick + side for part in range(0, lanes, 4)
                           for side in (0, lanes) for pick in (start, start + 2))
                     for start in (0, 1))
        return Shuffle((x, y), even) + Shuffle((x, y), odd)

    a, b, c, d = quarters
    return halved(halved(a, b), halved(c, d))


@dataclass(frozen=True, slots=True)
class QuantVectors:
    """The quants of a quarter of the rows: a run of 16 in each part, as bytes that wrap.

    ``rows`` are the indices of the rows, one per part; a block begins at byte ``first`` of a row.
    """

    buffer: Buffer
    rows: tuple[PrimExpr, ...]
    first: PrimExpr

    def byte(self, at: np.ndarray | int) -> PrimExpr:
        index = np.broadcast_to(np.atleast_1d(at), (RUN,))
        low, high = int(index.min()), int(index.max())
        count = 1 << (high - low).bit_length()
        if count == 1:
            return joined([Broadcast(self.buffer.load(row, self.first + low), RUN)
                           for row in self.rows])
        whole = [consecutive(self.buffer, (row,), self.first + low, count) for row in self.rows]
        picks = tuple(int(n) - low for n in index)
        if picks != tuple(range(count)):
            whole = [Shuffle((part,), picks) for part in whole]
        return joined(whole)

    signed = byte

    def shift_right(self, value: PrimExpr, bits: np.ndarray | int) -> PrimExpr:
        lanes = np.broadcast_to(np.atleast_1d(bits), (RUN,))
        result = value
        for amount in sorted({int(n) for n in lanes}):
            chosen = repeated(_bytes([0xFF if n == amount else 0 for n in lanes]), len(self.rows))
            moved = value // 2 ** amount
            result = te.select(chosen.not_equal(0), moved, result)
        return result

    def bit(self, at: int, lane: np.ndarray) -> PrimExpr:
        """Bit ``lane`` of the two bytes from ``at`` on."""
        mask = repeated(_bytes([1 << (n % _BITS) for n in lane]), len(self.rows))
        found = te.bitwise_and(self.byte(at + lane // _BITS), mask)
        return te.select(found.not_equal(0), const(1, found.dtype), const(0, found.dtype))

    def lookup(self, table: tuple[int, ...], index: PrimExpr) -> PrimExpr:
        return call(index.dtype, "table_lookup", index,
                    *(const(n, index.dtype) for n in table))

    def half(self, at: int) -> PrimExpr:
        raise InternalError("a quant of bytes reads a float", got=at)

    def single(self, at: int) -> PrimExpr:
        return self.half(at)

    def half_of(self, bits: PrimExpr) -> PrimExpr:
        raise InternalError("a quant of bytes is a float", got=bits)

    def number(self, value: PrimExpr) -> PrimExpr:
        return self.half_of(value)


def _bytes(values: Sequence[int]) -> PrimExpr:
    """A constant vector of 16 bytes."""
    words = [int.from_bytes(bytes(values[n:n + 8]), "little") for n in (0, 8)]
    low, high = (Broadcast(const(word, "uint64"), 2) for word in words)
    return as_type(Shuffle((low, high), (0, 2)), "uint8")


@dataclass(frozen=True, slots=True)
class ScaleVectors:
    """The scales of blocks of all rows, a row per lane: their bytes are read by words."""

    buffer: Buffer
    rows: tuple[PrimExpr, ...]
    first: PrimExpr
    nbytes: int

    def _word(self, at: int) -> tuple[PrimExpr, int]:
        """A word of each row that holds byte ``at``, and the place of the byte in it."""
        start = min(at // _WORD * _WORD, self.nbytes - _WORD)
        parts = [consecutive(self.buffer, (row,), self.first + start, _WORD) for row in self.rows]
        return as_type(joined(parts), "uint32"), at - start

    def byte(self, at: int) -> PrimExpr:
        word, place = self._word(at)
        return (word // 256 ** place % 256).astype(int32)

    def signed(self, at: int) -> PrimExpr:
        return self.byte(at).astype("int8").astype(int32)

    def half(self, at: int) -> PrimExpr:
        word, place = self._word(at)
        bits = (word // 256 ** place).astype("uint16")
        return te.reinterpret(DType.of("float16").vector(bits.dtype.lanes), bits).astype(float32)

    def single(self, at: int) -> PrimExpr:
        parts = [consecutive(self.buffer, (row,), self.first + at, _WORD) for row in self.rows]
        return as_type(joined(parts), "float32")

    def number(self, value: PrimExpr) -> PrimExpr:
        return value.astype(float32)

    def shift_right(self, value: PrimExpr, bits: PrimExpr) -> PrimExpr:
        return te.shift_right(value, bits)

    def lookup(self, table: tuple[int, ...], index: PrimExpr) -> PrimExpr:
        return call(index.dtype, "table_lookup", index, *(const(n, index.dtype) for n in table))

    def half_of(self, bits: PrimExpr) -> PrimExpr:
        raise InternalError("a scale is a float of bits", got=bits)

    def bit(self, at: int, lane: int) -> PrimExpr:
        return self.byte(at + lane // _BITS) // 2 ** (lane % _BITS) % 2
