"""Fourier transforms along the last axis, of sizes of small factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from weft import te
from weft.tir import Buffer, PrimExpr, const
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import Allocate, BufferStore, Stmt, seq
from weft.topi.fourier.butterflies import Number, Term
from weft.topi.fourier.lines import Line, Read, Write, line_pass, span
from weft.topi.fourier.plan import Pass, passes
from weft.topi.loop_nest import Body, nest
from weft.topi.sizes import fixed_size
from weft.topi.upcast import converted, upcast


def access(parts: Sequence[Buffer], at: Sequence[PrimExpr] = (), width: int = 1
           ) -> tuple[Read, Write]:
    """Reading and writing a line of two buffers, the real and the imaginary parts.

    An element is ``width`` numbers.
    """
    real, imaginary = parts

    def place(index: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*at, index if width == 1 else span(index * width, width))

    def read(start: PrimExpr, lanes: int) -> Number:
        index = place(span(start, lanes))
        return Number(Term(real.load(*index)), Term(imaginary.load(*index)))

    def write(index: PrimExpr, first: PrimExpr, second: PrimExpr) -> Stmt:
        return seq([BufferStore(real, first, place(index)),
                    BufferStore(imaginary, second, place(index))])

    return read, write


def whole_line(plan: Sequence[Pass], of: Line) -> Stmt:
    """All passes over a line; results of all but the last lie in scratch memory."""
    size = plan[0].radix * plan[0].left
    works = [[Buffer(name, (const(size * of.width),), of.dtype) for name in ("work", "work")]
             for _ in range(min(2, len(plan) - 1))]
    stmts = []
    for number, one in enumerate(plan):
        last = number == len(plan) - 1
        source = of.read if number == 0 else access(works[(number - 1) % 2], width=of.width)[0]
        target = of.write if last else access(works[number % 2], width=of.width)[1]
        step = replace(of, read=source, write=target, scale=of.scale if last else 1.0)
        stmts.append(line_pass(one, step))
    body = seq(stmts)
    for buffer in (b for work in works for b in work):
        body = Allocate(buffer, body)
    return body


def flops(size: int) -> int:
    """The usual count of operations of a transform."""
    return int(5 * size * math.log2(max(size, 1)))


def fft_rows(real: te.Tensor, imaginary: te.Tensor, *, inverse: bool, vector_bits: int
             ) -> tuple[te.Tensor, ...]:
    """As ``spectrum.dft``; the inverse exchanges real and imaginary parts before and after."""
    parts = [upcast(real), upcast(imaginary)]
    size, dtype = fixed_size(real.shape[-1], "the axis"), parts[0].dtype
    lanes = vector_bits // dtype.bits
    plan = passes(size, lanes)
    scale = 1 / size if inverse else 1.0

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        order = -1 if inverse else 1
        sources, targets = inputs[::order], outputs[::order]

        def row(at: tuple[PrimExpr, ...]) -> Stmt:
            return whole_line(plan, Line(dtype, lanes, access(sources, at)[0],
                                         access(targets, at)[1], scale))

        return each_row(real.shape[:-1], row, flops(size))

    found = te.extern([real.shape] * 2, parts, build, [dtype] * 2, "fft")
    return tuple(converted(x, real.dtype) for x in found)


def each_row(shape: Sequence[PrimExpr], body: Body, work: int) -> Stmt:
    """``body`` for every index of ``shape``, the axes as one."""
    if len(shape) <= 1:
        return nest(shape, body, independent=True, work=work)
    return nest((element_count(shape),), lambda i: body(unravel(i[0], shape)), independent=True,
                work=work)
