"""Fourier transforms of real rows: half of the frequencies.

Even and odd elements of a row are the real and imaginary parts of a row of half the size. Of its
transform, frequencies ``k`` and ``half - k`` tell the same two of the row.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.tir import Buffer, PrimExpr, Shuffle, as_prim, const
from weft.tir.stmt import Allocate, Stmt, seq
from weft.topi.fourier.butterflies import Number, Term
from weft.topi.fourier.factors import Roots
from weft.topi.fourier.lines import Line, Registers, blocks, span
from weft.topi.fourier.plan import passes, power_of_two
from weft.topi.fourier.rows import access, each_row, flops, whole_line
from weft.topi.sizes import fixed_size
from weft.topi.upcast import converted, upcast


def rfft_by_fft(x: te.Tensor, fft: Callable[..., tuple[te.Tensor, ...]]) -> tuple[te.Tensor, ...]:
    """Of rows of any size, by the transform ``fft`` of complex numbers."""
    zero = te.compute(x.shape, lambda *_: const(0, x.dtype), name="imaginary")
    found = fft(x, zero, inverse=False)
    shape = (*x.shape[:-1], x.shape[-1] // 2 + 1)

    def half(part: te.Tensor) -> te.Tensor:
        # A symbolic size may be 0: then there is no element to read.
        return te.compute(shape, lambda *i: te.if_then_else(
            i[-1] < part.shape[-1], part[i], const(0, part.dtype)), name="half")

    return tuple(half(part) for part in found)


def rfft_rows(x: te.Tensor, *, vector_bits: int) -> tuple[te.Tensor, ...]:
    """The real and imaginary parts of half of the frequencies of rows of an even size."""
    data, half = upcast(x), fixed_size(x.shape[-1], "the axis") // 2
    lanes, dtype = vector_bits // data.dtype.bits, data.dtype
    plan = passes(half, lanes)

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source,) = inputs
        work = [Buffer("spectrum", (const(half),), dtype) for _ in range(2)]

        def row(at: tuple[PrimExpr, ...]) -> Stmt:
            def read(start: PrimExpr, lanes: int) -> Number:
                both = source.load(*at, span(start * 2, 2 * lanes))
                return Number(*(Term(Shuffle((both,), tuple(range(part, 2 * lanes, 2))))
                                for part in range(2)))

            whole = whole_line(plan, Line(dtype, lanes, read, access(work)[1]))
            parts = _separated(work, outputs, at, lanes)
            return Allocate(work[0], Allocate(work[1], seq([whole, parts])))

        return each_row(x.shape[:-1], row, flops(2 * half) // 2)

    shape = (*x.shape[:-1], half + 1)
    found = te.extern([shape] * 2, [data], build, [dtype] * 2, "rfft")
    return tuple(converted(one, x.dtype) for one in found)


def _separated(work: list[Buffer], outputs: tuple[Buffer, ...], at: tuple[PrimExpr, ...],
               most: int) -> Stmt:
    """The frequencies of a row from those of its even and odd elements."""
    half = int(work[0].static_shape[0])  # type: ignore[index]
    write = access(outputs, at)[1]
    zero, end = as_prim(0), const(half)
    real, imaginary = (part.load(zero) for part in work)
    none = const(0, work[0].dtype)
    ends = [write(zero, real + imaginary, none), write(end, real - imaginary, none)]
    if half == 1:
        return seq(ends)
    lanes = min(most, power_of_two(half // 2))
    roots = Roots(1, 2 * half, half // 2, first=1)

    def pair(start: PrimExpr) -> Stmt:
        out = Registers(work[0].dtype, lanes, 2)
        low, high = start + 1, end - start - lanes
        one = out.keep(access(work)[0](low, lanes))
        other = out.keep(backwards(access(work)[0](high, lanes)))
        conjugate = other.conjugate()
        even = out.keep((one + conjugate).scaled(0.5))
        odd = out.keep((one - conjugate).scaled(0.5))
        odd = out.keep(odd.times(*roots.at(start, lanes, work[0].dtype)).quarter())
        for place, found in ((low, even + odd), (high, backwards((even - odd).conjugate()))):
            out.stmts.append(write(span(place, lanes), *(part.plain() for part in found)))
        return out.stmt()

    return seq([*ends, blocks(half // 2, lanes, pair)])


def backwards(x: Number) -> Number:
    """The lanes of vectors in the opposite order."""
    lanes = x.real.value.dtype.lanes
    if lanes == 1:
        return x
    picks = tuple(reversed(range(lanes)))
    return Number(*(Term(Shuffle((part.value,), picks), part.is_negative) for part in x))
