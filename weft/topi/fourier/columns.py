"""Fourier transforms along an axis before the last, whose elements are the lanes of vectors."""

from __future__ import annotations

from weft import te
from weft.tir import Buffer, PrimExpr, const, minimum
from weft.tir.stmt import BufferStore, Stmt, seq
from weft.topi.fourier.butterflies import Number, Term
from weft.topi.fourier.lines import Line, Read, Write, span
from weft.topi.fourier.plan import passes, power_of_two
from weft.topi.fourier.rows import each_row, flops, whole_line
from weft.topi.sizes import fixed_size
from weft.topi.upcast import converted, upcast


def fft_columns(real: te.Tensor, imaginary: te.Tensor, axis: int, *, inverse: bool,
                vector_bits: int) -> tuple[te.Tensor, ...]:
    """As ``spectrum.dft``; ``axis`` is negative and not the last, which has a fixed size."""
    parts = [upcast(real), upcast(imaginary)]
    size, dtype = fixed_size(real.shape[axis], "the axis"), parts[0].dtype
    columns, plan = fixed_size(real.shape[-1], "the last axis"), passes(size, 0)
    lanes = min(vector_bits // dtype.bits, power_of_two(columns))
    number, scale, position = -(-columns // lanes), 1 / size if inverse else 1.0, real.ndim + axis

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        order = -1 if inverse else 1
        sources, targets = inputs[::order], outputs[::order]

        def block(at: tuple[PrimExpr, ...]) -> Stmt:
            start = minimum(at[-1] * lanes, columns - lanes)
            rest = (*at[:position], *at[position:-1], span(start, lanes))
            return whole_line(plan, Line(
                dtype, 1, _access(sources, position, rest)[0], _access(targets, position, rest)[1],
                scale, lanes))

        shape = (*real.shape[:position], *real.shape[position + 1:-1], const(number))
        return each_row(shape, block, flops(size) * lanes)

    found = te.extern([real.shape] * 2, parts, build, [dtype] * 2, "fft_columns")
    return tuple(converted(x, real.dtype) for x in found)


def _access(parts: tuple[Buffer, ...], axis: int, rest: tuple[PrimExpr, ...]
            ) -> tuple[Read, Write]:
    """Reading and writing vectors at a position along ``axis``; ``rest`` indexes the others."""
    real, imaginary = parts

    def read(start: PrimExpr, _: int) -> Number:
        at = (*rest[:axis], start, *rest[axis:])
        return Number(Term(real.load(*at)), Term(imaginary.load(*at)))

    def write(index: PrimExpr, first: PrimExpr, second: PrimExpr) -> Stmt:
        at = (*rest[:axis], index, *rest[axis:])
        return seq([BufferStore(real, first, at), BufferStore(imaginary, second, at)])

    return read, write
