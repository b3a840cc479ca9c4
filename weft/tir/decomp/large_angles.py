"""float64 angles of any size less their quarter turns (Payne and Hanek, 1983).

``x = m * 2**(16k)`` with ``m`` below 2**69, a whole number unless ``k`` is 0, and ``2**(16k)``
radians are looked up in quarter turns, without whole turns, which do not count. Four float64 hold
each to 212 bits: 69 are lost to ``m``, 61 where ``x`` is as near to a quarter turn as a float64 can
be, and 53 are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from weft.tir.decomp.build import Body
from weft.tir.expr import Call, PrimExpr, maximum

_STEP_BITS = 4  # an entry for each 2**4 exponents
_FIRST_EXPONENT = 1023 + 52  # biased: of the least float64 that has nothing after its point
_ENTRIES = 64  # 61 of them are reached
_PARTS = 4
_FRACTION_BITS = 1400
# pi / 2 in two parts.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def _inverse_tangent(divisor: int, one: int) -> int:
    """``atan(1 / divisor) * one``, by its series."""
    term = total = one // divisor
    n = 1
    while term:
        term //= -divisor * divisor
        n += 2
        total += term // n
    return total


@cache
def _two_over_pi() -> int:
    """``2 / pi * 2**_FRACTION_BITS``, by Machin's formula."""
    guard = 64
    one = 1 << (_FRACTION_BITS + guard)
    pi = 4 * (4 * _inverse_tangent(5, one) - _inverse_tangent(239, one))
    return (2 << (2 * _FRACTION_BITS + guard)) // pi


@cache
def quarter_turns() -> tuple[tuple[float, ...], ...]:
    """By part, for each ``k``: ``2**(16k)`` radians in quarter turns, between -2 and 2."""
    one = 1 << _FRACTION_BITS
    rows = []
    for k in range(_ENTRIES):
        turns = (_two_over_pi() << (k << _STEP_BITS)) % (4 * one)
        rest = Fraction(turns if turns <= 2 * one else turns - 4 * one, one)
        parts = []
        for _ in range(_PARTS):
            parts.append(float(rest))
            rest -= Fraction(parts[-1])
        rows.append(parts)
    return tuple(zip(*rows, strict=True))


def reduced(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """``(r, t, n)``: ``x`` less ``n`` quarter turns in two parts, and ``n`` as an integer.

    For finite ``x`` from 1 on in size; others give any number.
    """
    field = Call(body.integer, "bitwise_and", (body.bits(x), body.whole(0x7FF << 52)))
    first = body.whole(_FIRST_EXPONENT << 52)
    step = body.let("step", body.shift_right(maximum(field, first) - first, 52 + _STEP_BITS))
    m = body.let("m", body.from_bits(body.bits(x) - body.shift_left(step, 52 + _STEP_BITS)))
    terms: list[PrimExpr] = []
    for number, entries in enumerate(quarter_turns()):
        part = body.table_lookup("part", step, entries)
        high = body.let("high", m * part)
        low = body.let("low", body.fma(m, part, body.real(0.0) - high))
        # Further products are below half a turn.
        terms += [_without_turns(body, high), _without_turns(body, low)] if number < 2 else [
            high, low]
    whole = body.let("whole", Call(body.dtype, "round", (terms[0] + terms[1] + terms[2],)))
    terms[0] = body.let("term", terms[0] - whole)
    for _ in range(3):
        terms = _distilled(body, terms)
    fraction, rest = terms[0], terms[1] + terms[2]
    angle = body.let("angle", fraction * body.real(_HALF_PI[0]))
    lost = body.fma(fraction, _HALF_PI[0], body.real(0.0) - angle)
    tail = body.fma(fraction, _HALF_PI[1], body.fma(rest, _HALF_PI[0], lost))
    r = body.let("r", angle + tail)
    return r, body.let("t", tail - (r - angle)), body.nearest("n", (whole, 1.0))[1]


def _without_turns(body: Body, quarters: PrimExpr) -> PrimExpr:
    turns = Call(body.dtype, "round", (quarters * body.real(0.25),))
    return body.let("term", body.fma(turns, -4.0, quarters))


def _distilled(body: Body, terms: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Terms of the same sum, the first of them their rounded sum (Ogita, Rump and Oishi, 2005)."""
    errors: list[PrimExpr] = []
    total = terms[-1]
    for term in reversed(terms[:-1]):
        joined = body.let("joined", term + total)
        rest = body.let("rest", joined - term)
        errors.append(body.let("error", (term - (joined - rest)) + (total - rest)))
        total = joined
    return [total, *reversed(errors)]
