"""Vector passes of Fourier transforms over one line of numbers (Stockham's algorithm).

Elements along a line are lanes of vectors. What the first pass writes is interleaved by shuffles;
later passes move runs of ``done`` elements. The last vector of a run overlaps the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.dtype import DType, int64
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Ramp, Shuffle, Var, as_prim, const, minimum
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, Stmt, seq
from weft.topi.fourier.butterflies import Number, Term, transform
from weft.topi.fourier.factors import Roots
from weft.topi.fourier.plan import Pass, power_of_two

# The numbers from a position on, and what stores parts of numbers there, as vectors of some lanes.
Read = Callable[[PrimExpr, int], Number]
Write = Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


def span(start: PrimExpr, lanes: int) -> PrimExpr:
    """The indices of ``lanes`` elements from ``start`` on."""
    return start if lanes == 1 else Ramp(start, const(1), lanes)


class Registers:
    """Statements that name values: each is a slot of a local buffer."""

    def __init__(self, dtype: DType, lanes: int, radix: int) -> None:
        self.lanes = lanes
        self.buffer = Buffer("v", (const(lanes * 32 * (radix + 1)),), dtype, "local")
        self.stmts: list[Stmt] = []
        self.count = 0

    def keep(self, x: Number) -> Number:
        return Number(*(Term(self.value(part.value), part.is_negative) for part in x))

    def value(self, value: PrimExpr) -> PrimExpr:
        at = span(const(self.count * self.lanes), self.lanes)
        self.count += 1
        self.stmts.append(BufferStore(self.buffer, value, (at,)))
        return self.buffer.load(at)

    def stmt(self) -> Stmt:
        return Allocate(self.buffer, seq(self.stmts))


@dataclass(frozen=True, slots=True)
class Line:
    """Where a pass reads and writes; ``lanes`` elements of the line make a vector.

    With one, an element may be a vector of ``width`` numbers of as many lines.
    """

    dtype: DType
    lanes: int
    read: Read
    write: Write
    scale: float = 1.0
    width: int = 1


def line_pass(one: Pass, line: Line) -> Stmt:
    """One pass over a line."""
    return _first(one, line) if one.done == 1 and line.lanes > 1 else _later(one, line)


def blocks(count: int, lanes: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``body(start)`` for vectors that cover ``count`` elements, the last one up to the end."""
    number = -(-count // lanes)
    if number == 1:
        return body(as_prim(0))
    block = Var("block", int64)
    start = block * lanes
    if count % lanes:
        start = minimum(start, count - lanes)
    return For(block, const(0), const(number), ForKind.SERIAL, body(start))


def _scaled(y: Number, k: int, one: Pass, start: PrimExpr, lanes: int, line: Line) -> Number:
    """Result ``k`` of a butterfly at ``lanes`` positions, times its factors."""
    if k and one.left > 1:
        roots = Roots(k, one.radix * one.left, one.left)
        y = y.times(*roots.at(start, lanes, line.dtype))
    return y if line.scale == 1 else y.scaled(line.scale)


def _first(one: Pass, line: Line) -> Stmt:
    lanes = min(line.lanes, power_of_two(one.left))

    def body(start: PrimExpr) -> Stmt:
        out = Registers(line.dtype, lanes, one.radix)
        x = [out.keep(line.read(start + j * one.left, lanes)) for j in range(one.radix)]
        found = transform(x, out.keep)
        found = [_scaled(y, k, one, start, lanes, line) for k, y in enumerate(found)]
        parts = [[out.value(y[part].plain()) for y in found] for part in range(2)]
        _write_interleaved(out, line, start * one.radix, parts, lanes)
        return out.stmt()

    return blocks(one.left, lanes, body)


def _write_interleaved(out: Registers, line: Line, start: PrimExpr,
                       parts: Sequence[Sequence[PrimExpr]], lanes: int) -> None:
    """Element ``k`` of lane ``p`` goes to ``start + radix * p + k``."""
    radix, first = len(parts[0]), 0
    while first < radix:
        width = min(lanes, power_of_two(radix - first))
        streams = [_interleaved(out, part[first:first + width]) for part in parts]
        if width == radix:
            for number, (real, imaginary) in enumerate(zip(*streams, strict=True)):
                out.stmts.append(line.write(span(start + number * lanes, lanes), real, imaginary))
        else:
            for lane in range(lanes):
                number, at = divmod(lane * width, lanes)
                run = [_lanes(stream[number], at, width) for stream in streams]
                out.stmts.append(line.write(span(start + radix * lane + first, width), *run))
        first += width


def _lanes(vector: PrimExpr, start: int, count: int) -> PrimExpr:
    if vector.dtype.lanes == count:
        return vector
    return Shuffle((vector,), tuple(range(start, start + count)))


def _interleaved(out: Registers, vectors: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The first lanes of all vectors in their order, then the second lanes, and so on."""
    if len(vectors) == 1:
        return list(vectors)
    lanes = out.lanes
    if lanes == 1:
        return list(vectors)
    even, odd = (_interleaved(out, vectors[half::2]) for half in range(2))
    low = tuple(lane // 2 + lane % 2 * lanes for lane in range(lanes))
    high = tuple(index + lanes // 2 for index in low)
    return [out.value(Shuffle((a, b), picks)) for a, b in zip(even, odd, strict=True)
            for picks in (low, high)]


def _later(one: Pass, line: Line) -> Stmt:
    lanes = min(line.lanes, power_of_two(one.done))
    p = Var("p", int64)

    def body(start: PrimExpr) -> Stmt:
        out = Registers(line.dtype, max(lanes, line.width), one.radix)
        x = [out.keep(line.read(start + (p + j * one.left) * one.done, lanes))
             for j in range(one.radix)]
        for k, y in enumerate(transform(x, out.keep)):
            at = start + (p * one.radix + k) * one.done
            parts = (part.plain() for part in _scaled(y, k, one, p, 1, line))
            out.stmts.append(line.write(span(at, lanes), *parts))
        return out.stmt()

    loop = blocks(one.done, lanes, body)
    return For(p, const(0), const(one.left), ForKind.SERIAL, loop)
