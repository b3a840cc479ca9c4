"""Odd float32 functions that level off: one short polynomial for each interval of ``|x|``.

The intervals are half octaves, so that the leading bits of ``|x|`` number them. Each lane looks up
the coefficients of its own interval, about a centre in it: no lane computes what another range of
arguments needs, and nothing is divided.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.tir.decomp import tables
from weft.tir.decomp.build import Body
from weft.tir.expr import PrimExpr, maximum, select

# The first interval reaches from 0 to 2**-4; its number is that of the half octave below 2**-4.
_FIRST_BITS = 0x3D400000
_NUMBER_SHIFT = 22


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the function stops changing; by interval the centre, and the coefficients, those of
    one power together and the constant ones first. The first piece is ``f(x) - x``.
    """

    end: float
    centres: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]


TANH = Pieces(tables.TANH_END, tables.TANH_CENTRES, tables.TANH_COEFFICIENTS)
ERF = Pieces(tables.ERF_END, tables.ERF_CENTRES, tables.ERF_COEFFICIENTS)


def _by_number(entries: tuple[float, ...]) -> tuple[float, ...]:
    """The entries in the order of the numbers of intervals, modulo how many there are."""
    start = (_FIRST_BITS >> _NUMBER_SHIFT) % len(entries)
    return entries[-start:] + entries[:-start]


def odd_in(body: Body, x: PrimExpr, pieces: Pieces) -> PrimExpr:
    """The function at ``x``, within 2 ulp, as values of ``body``; NaN stays."""
    a = body.magnitude(x)
    a = body.let("a", select(a > body.real(pieces.end), body.real(pieces.end), a))
    leading = maximum(body.bits(a), body.whole(_FIRST_BITS))
    number = body.let("number", body.shift_right(leading, _NUMBER_SHIFT))
    t = body.let("t", a - body.table_lookup("centre", number, _by_number(pieces.centres)))
    constant, *rest = (body.table_lookup("c", number, _by_number(c)) for c in pieces.coefficients)
    slope = body.polynomial("slope", t, rest)
    # ``t`` in the first interval, where the constant is 0: there ``f(x) - x`` is added to ``x``,
    # with one rounding. The constants of the others are larger than ``t``. Floats above zero
    # compare as integers, and every one is above those below zero.
    base = body.from_bits(maximum(body.bits(constant), body.bits(t)))
    return body.with_sign_of(body.multiply_add(slope, t, base), x)
