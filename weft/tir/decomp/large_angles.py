"""Range reduction of large float64 angles modulo pi/2 (Payne and Hanek, 1983).

``x = m * 2**(16k)`` with ``m < 2**69``, an integer unless ``k`` is 0. A table has ``2**(16k)``
radians in units of pi/2, modulo 4, as four float64 numbers (212 bits). Of these, multiplication by
``m`` loses 69, cancellation for the ``x`` closest to a multiple of pi/2 loses 61, and 53 are
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from weft.tir.decomp.build import Body
from weft.tir.expr import Call, PrimExpr, maximum

_STEP_BITS = 4  # one entry per 2**4 exponents
_FIRST_EXPONENT = 1023 + 52  # biased exponent of 2**52, from which on float64 numbers are integers
_ENTRIES = 64  # 61 are used
_PARTS = 4
_FRACTION_BITS = 1400
# pi / 2 in two parts.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def _inverse_tangent(divisor: int, one: int) -> int:
    """``atan(1 / divisor) * one``, by its Taylor series in integers."""
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
    """``2**(16k)`` radians in units of pi/2, modulo 4, in [-2, 2]; four tables indexed by ``k``."""
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
    """``(r, t, n)`` with ``x = n * pi/2 + r + t``; ``n`` is an integer modulo 4.

    For finite ``|x| >= 1``; unspecified for others.
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
        # The products with later parts are too small to contain whole turns.
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
    """Terms with the same sum, the first being the rounded sum (Ogita, Rump and Oishi, 2005)."""
    errors: list[PrimExpr] = []
    total = terms[-1]
    for term in reversed(terms[:-1]):
        joined = body.let("joined", term + total)
        rest = body.let("rest", joined - term)
        errors.append(body.let("error", (term - (joined - rest)) + (total - rest)))
        total = joined
    return [total, *reversed(errors)]
