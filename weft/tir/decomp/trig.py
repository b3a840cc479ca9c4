"""Sine and cosine: the argument less a multiple of a quarter turn, then a polynomial.

float32 reduces its argument in float64: ``x = m * 2**(8k)`` with ``m`` below 2**32, and ``2**(8k)``
radians are looked up as quarter turns to 106 bits, without whole turns, which do not count. float64
takes away three parts of pi/2; where a lane is larger than that allows, ``large_angles`` reduces
it. Both are within 2 ulp for every finite argument.
"""

from __future__ import annotations

import math

from weft.ir.dtype import float64
from weft.tir.decomp import large_angles
from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import COS_32, COS_64, SIN_32, SIN_64
from weft.tir.decomp.tables import QUARTER_TURNS, QUARTER_TURNS_REST
from weft.tir.expr import Call, PrimExpr, cast, maximum, select

_TWO_OVER_PI = 0.6366197723675814
# Up to here a product of a part of pi/2 and the number of quarter turns has one rounding.
_LARGEST_PLAIN = 2.0**30
_HALF_PI_PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_COEFFICIENTS = {32: (SIN_32, COS_32), 64: (SIN_64, COS_64)}
# Exponents, with the bias of float64: of the largest float32 for which ``k`` is 0, less 7.
_FIRST_EXPONENT = 1023 + 24
# Infinity and NaN get one of the entries behind the table.
_BEHIND = (math.nan,) * (16 - len(QUARTER_TURNS))


def _reduced(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """``(r, n)``: ``x`` less ``n`` quarter turns, and ``n`` as an integer of the result's width.

    float64 up to ``_LARGEST_PLAIN``.
    """
    if body.dtype.bits == 32:
        turned, n_int = _reduced_in_float64(body.within(float64), cast(x, "float64"))
        return body.let("r", cast(turned, "float32")), cast(n_int, body.integer.element)
    n, n_int = body.nearest("n", (x, _TWO_OVER_PI))
    r = x
    for part in _HALF_PI_PARTS:
        r = body.fma(n, -part, r)
    return body.let("r", r), n_int


def _reduced_in_float64(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The same for a float32 ``x`` of any size, as values of float64."""
    bits = body.let("x_bits", body.bits(x))
    field = Call(body.integer, "bitwise_and", (bits, body.whole(0x7FF << 52)))
    first = body.whole(_FIRST_EXPONENT << 52)
    # Three bits of the exponent stay with ``m``.
    step = body.let("step", body.shift_right(maximum(field, first) - first, 52 + 3))
    m = body.let("m", body.from_bits(bits - body.shift_left(step, 52 + 3)))
    unit = body.lookup("unit", step, (*QUARTER_TURNS, *_BEHIND))
    rest = body.lookup("rest", step, (*QUARTER_TURNS_REST, *_BEHIND))
    turns = body.let("turns", m * unit)
    lost = body.fma(m, unit, body.real(0.0) - turns)
    n, n_int = body.nearest("n", (turns, 1.0))
    fraction = (turns - n) + body.fma(m, rest, lost)
    return body.let("turned", fraction * body.real(_HALF_PI_PARTS[0])), n_int


def _circular(x: PrimExpr, quarter_turns: int) -> PrimExpr:
    """Sine of ``x`` advanced by so many quarter turns; the sign of a zero may be lost."""
    body = Body(x.dtype)
    x = body.let("x", x)
    usual = _of_reduced(body, *_reduced(body, x), quarter_turns)
    if body.dtype.bits == 32:
        return body.result(usual)
    rare = Body(x.dtype)
    large = _of_reduced(rare, *large_angles.reduced(rare, x), quarter_turns)
    is_large = body.magnitude(x) > body.real(_LARGEST_PLAIN)
    # Infinities become NaN.
    sides = rare.result(large + (x - x)), usual
    return body.result(Call(body.dtype, "rarely", (is_large, *sides)))


def _of_reduced(body: Body, r: PrimExpr, n: PrimExpr, quarter_turns: int) -> PrimExpr:
    quadrant = body.let("quadrant", n + body.whole(quarter_turns))
    z = body.let("z", r * r)
    sine, cosine = _COEFFICIENTS[body.dtype.bits]
    s = body.multiply_add(r * z, body.polynomial("s", z, sine), r)
    c = body.multiply_add(z * z, body.polynomial("c", z, cosine), body.multiply_add(z, -0.5, 1.0))
    is_odd = Call(body.integer, "bitwise_and", (quadrant, body.whole(1))).equal(body.whole(1))
    is_negated = Call(body.integer, "bitwise_and", (quadrant, body.whole(2))).equal(body.whole(2))
    value = body.let("value", select(is_odd, c, s))
    return select(is_negated, body.real(0.0) - value, value)


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians; NaN for infinities."""
    body = Body(x.dtype)
    x = body.let("x", x)
    return body.result(select(x.equal(body.real(0.0)), x, _circular(x, 0)))


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    return _circular(x, 1)
