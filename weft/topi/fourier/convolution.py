"""Fourier transforms of sizes with a large prime factor, as a convolution (Bluestein).

As ``2 n k = n**2 + k**2 - (k - n)**2``, a transform is a convolution with a chirp between two
products with its conjugate. The convolution has a larger size, of small factors: two transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from weft import te
from weft.ir.dtype import DType, float64
from weft.tir import Buffer, PrimExpr, const
from weft.tir.expr import Broadcast, select
from weft.tir.stmt import Allocate, Stmt, seq
from weft.topi.fourier.lines import Line, Read, Registers, Write, blocks, line_pass, span
from weft.topi.fourier.plan import Pass, passes, power_of_two
from weft.topi.fourier.rows import access, each_row, fft_rows, flops
from weft.topi.sizes import fixed_size
from weft.topi.upcast import converted, upcast


def fft_by_convolution(real: te.Tensor, imaginary: te.Tensor, *, inverse: bool, vector_bits: int
                       ) -> tuple[te.Tensor, ...]:
    """As ``fft_rows``, of any fixed size."""
    parts = [upcast(real), upcast(imaginary)]
    size, dtype = fixed_size(real.shape[-1], "the axis"), parts[0].dtype
    longer = convolution_size(size)
    chirp = [_chirp(size, dtype, function) for function in (te.cos, te.sin)]
    factors = fft_rows(*_wrapped(chirp, size, longer), inverse=False, vector_bits=vector_bits)
    lanes = vector_bits // dtype.bits

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        order = -1 if inverse else 1
        sources, targets = inputs[:2][::order], outputs[::order]

        def row(at: tuple[PrimExpr, ...]) -> Stmt:
            last = Line(dtype, lanes, access(sources, at)[0], access(targets, at)[1],
                        1 / size if inverse else 1.0)
            return _row(last, size, longer, inputs[2:4], inputs[4:])

        return each_row(real.shape[:-1], row, 2 * flops(longer))

    found = te.extern([real.shape] * 2, [*parts, *chirp, *factors], build, [dtype] * 2,
                      "fft_by_convolution")
    return tuple(converted(x, real.dtype) for x in found)


def convolution_size(size: int) -> int:
    """The least size of a few small factors that a convolution of ``size`` elements needs."""
    least = 2 * size - 1
    return min(factor << max(0, math.ceil(math.log2(least / factor))) for factor in range(8, 17))


def _chirp(size: int, dtype: DType, function: Callable[[PrimExpr], PrimExpr]) -> te.Tensor:
    """Cosines or sines of ``pi n**2 / size``."""
    step = const(math.pi / size, float64)
    return te.compute((size,), lambda n: function(
        (n * n % (2 * size)).astype(float64) * step).astype(dtype), name="chirp")


def _wrapped(chirp: Sequence[te.Tensor], size: int, longer: int) -> list[te.Tensor]:
    """The chirp at distances from 0 up to ``size``, on both sides; the rest is 0."""
    def wrapped(part: te.Tensor, sign: int) -> te.Tensor:
        def element(_: PrimExpr, n: PrimExpr) -> PrimExpr:
            distance = select(n < size, n, longer - n)
            return te.if_then_else(distance < size, part[distance] * const(sign, part.dtype),
                                   const(0, part.dtype))

        return te.compute((1, longer), element, name="wrapped")

    return [wrapped(part, sign) for part, sign in zip(chirp, (1, -1), strict=True)]


def _row(line: Line, size: int, longer: int, chirp: Sequence[Buffer], factors: Sequence[Buffer]
         ) -> Stmt:
    """One row: the product with the chirp, padded, the convolution, the product with the chirp."""
    work = [[Buffer(name, (const(longer),), line.dtype) for _ in range(2)]
            for name in ("one", "other")]
    plan, plain = passes(longer, line.lanes), replace(line, scale=1.0)
    roots, transformed = access(chirp)[0], access(factors, (const(0),))[0]
    zeros = min(line.lanes, power_of_two(longer - size))
    write = access(work[0])[1]
    padding = blocks(longer - size, zeros, lambda start: write(span(start + size, zeros),
                                                               *[_zero(line.dtype, zeros)] * 2))
    first, (spectrum, free) = _ping_pong(plan, plain, work)
    # The inverse of a transform exchanges real and imaginary parts before and after.
    second, (found, _) = _ping_pong(plan, plain, [free[::-1], spectrum[::-1]])
    body = seq([
        _multiplied(size, plain, line.read, roots, write), padding, *first,
        _multiplied(longer, replace(line, scale=1 / longer), access(spectrum)[0], transformed,
                    access(free)[1]),
        *second, _multiplied(size, line, access(found[::-1])[0], roots, line.write),
    ])
    for buffer in (*work[0], *work[1]):
        body = Allocate(buffer, body)
    return body


def _ping_pong(plan: Sequence[Pass], line: Line, work: Sequence[Sequence[Buffer]]
               ) -> tuple[list[Stmt], tuple[Sequence[Buffer], Sequence[Buffer]]]:
    """The passes over what ``work[0]`` holds, and which of the two has the result, and which not.

    Each pass reads what the one before wrote and overwrites what that read.
    """
    source, target = work
    stmts = []
    for one in plan:
        stmts.append(line_pass(one, replace(line, read=access(source)[0],
                                            write=access(target)[1])))
        source, target = target, source
    return stmts, (source, target)


def _multiplied(size: int, line: Line, read: Read, factors: Read, write: Write) -> Stmt:
    lanes = min(line.lanes, power_of_two(size))

    def block(start: PrimExpr) -> Stmt:
        out = Registers(line.dtype, lanes, 2)
        factor = factors(start, lanes)
        found = out.keep(read(start, lanes)).times(factor.real.value, factor.imaginary.value)
        found = found if line.scale == 1 else found.scaled(line.scale)
        out.stmts.append(write(span(start, lanes), *(part.plain() for part in found)))
        return out.stmt()

    return blocks(size, lanes, block)


def _zero(dtype: DType, lanes: int) -> PrimExpr:
    zero = const(0, dtype)
    return zero if lanes == 1 else Broadcast(zero, lanes)
