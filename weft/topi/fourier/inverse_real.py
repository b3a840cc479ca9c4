"""Inverse Fourier transforms to real rows, from half of the frequencies.

What ``weft.topi.fourier.real`` does, backwards: the frequencies of a row give those of a row of
half the size, whose real and imaginary parts are its even and odd elements.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.tir import Buffer, PrimExpr, Ramp, Shuffle, any_of, as_prim, const, select
from weft.tir.stmt import Allocate, BufferStore, Stmt, seq
from weft.topi.fourier.factors import Roots
from weft.topi.fourier.lines import Line, Registers, Write, blocks, span
from weft.topi.fourier.plan import passes, power_of_two
from weft.topi.fourier.real import backwards
from weft.topi.fourier.rows import access, each_row, flops, whole_line
from weft.topi.upcast import converted, upcast


def irfft_by_fft(real: te.Tensor, imaginary: te.Tensor, size: PrimExpr | int,
                 fft: Callable[..., tuple[te.Tensor, ...]]) -> te.Tensor:
    """Rows of any size, by the transform ``fft`` of complex numbers."""
    half = size // 2

    def mirrored(part: te.Tensor, *, is_real: bool) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            k = i[-1]
            found = part[(*i[:-1], select(k <= half, k, size - k))]
            if is_real:
                return found
            signed = select(k <= half, found, found * const(-1, part.dtype))
            return select(any_of(k.equal(0), (k * 2).equal(size)), const(0, part.dtype), signed)

        return te.compute((*part.shape[:-1], size), element, name="mirrored")

    return fft(mirrored(real, is_real=True), mirrored(imaginary, is_real=False), inverse=True)[0]


def irfft_rows(real: te.Tensor, imaginary: te.Tensor, size: int, *, vector_bits: int) -> te.Tensor:
    """Rows of an even size."""
    parts, half = [upcast(real), upcast(imaginary)], size // 2
    lanes, dtype = vector_bits // parts[0].dtype.bits, parts[0].dtype
    plan = passes(half, lanes)

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        work = [Buffer("spectrum", (const(half),), dtype) for _ in range(2)]

        def row(at: tuple[PrimExpr, ...]) -> Stmt:
            # The inverse of a transform exchanges real and imaginary parts before and after.
            back = Line(dtype, lanes, access(work[::-1])[0], _alternating(outputs[0], at), 1 / size)
            body = seq([_joined(inputs, at, work, lanes), whole_line(plan, back)])
            return Allocate(work[0], Allocate(work[1], body))

        return each_row(real.shape[:-1], row, flops(size) // 2)

    found = te.extern([(*real.shape[:-1], size)], parts, build, [dtype], "irfft")[0]
    return converted(found, real.dtype)


def _alternating(target: Buffer, at: tuple[PrimExpr, ...]) -> Write:
    """Stores the second part at even elements and the first at odd ones."""
    def write(index: PrimExpr, odd: PrimExpr, even: PrimExpr) -> Stmt:
        if not isinstance(index, Ramp):
            return seq([BufferStore(target, even, (*at, index * 2)),
                        BufferStore(target, odd, (*at, index * 2 + 1))])
        lanes = index.lanes
        picks = tuple(lane // 2 + lane % 2 * lanes for lane in range(2 * lanes))
        return BufferStore(target, Shuffle((even, odd), picks),
                           (*at, span(index.base * 2, 2 * lanes)))

    return write


def _joined(inputs: tuple[Buffer, ...], at: tuple[PrimExpr, ...], work: list[Buffer], most: int
            ) -> Stmt:
    """The frequencies of even and odd elements, twice, from those of the row."""
    half, dtype = int(work[0].static_shape[0]), work[0].dtype  # type: ignore[index]
    read, write = access(inputs, at)[0], access(work)[1]
    end = const(half)
    first, last = (inputs[0].load(*at, place) for place in (as_prim(0), end))
    ends = write(as_prim(0), first + last, first - last)
    if half == 1:
        return ends
    lanes = min(most, power_of_two(half // 2))
    roots = Roots(1, 2 * half, half // 2, first=1)

    def pair(start: PrimExpr) -> Stmt:
        out = Registers(dtype, lanes, 2)
        low, high = start + 1, end - start - lanes
        one = out.keep(read(low, lanes))
        other = out.keep(backwards(read(high, lanes))).conjugate()
        even, odd = out.keep(one + other), out.keep(one - other).conjugate()
        odd = out.keep(odd.times(*roots.at(start, lanes, dtype)).conjugate()).quarter()
        for place, found in ((low, even - odd), (high, backwards((even + odd).conjugate()))):
            out.stmts.append(write(span(place, lanes), *(part.plain() for part in found)))
        return out.stmt()

    return seq([ends, blocks(half // 2, lanes, pair)])
