"""Sine, cosine and tangent: the argument less a multiple of a quarter turn, then a polynomial.

float32 reduces its argument in float64: ``x = m * 2**(8k)`` with ``m`` below 2**32, and ``2**(8k)``
radians are looked up as quarter turns to 106 bits, without whole turns, which do not count. float64
takes away three parts of pi/2; where a lane is larger than that allows, ``large_angles`` reduces
it. All are within 2 ulp for every finite argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

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


# A remainder in two parts, the second below the last digit of the first, and how many quarter
# turns were taken off, as an integer of the result's width.
Reduced: TypeAlias = "tuple[PrimExpr, PrimExpr, PrimExpr]"


def _reduced(body: Body, x: PrimExpr) -> Reduced:
    """``x`` less quarter turns; float64 up to ``_LARGEST_PLAIN``."""
    if body.dtype.bits == 32:
        inner = body.within(float64)
        turned, n_int = _reduced_in_float64(inner, cast(x, "float64"))
        r = body.let("r", cast(turned, "float32"))
        t = body.let("t", cast(turned - cast(r, "float64"), "float32"))
        return r, t, cast(n_int, body.integer.element)
    n, n_int = body.nearest("n", (x, _TWO_OVER_PI))
    first, second, third = _HALF_PI_PARTS
    exact = body.let("exact", body.fma(n, -first, x))
    near = body.let("near", body.fma(n, -second, exact))
    r = body.let("r", body.fma(n, -third, near))
    lost = body.fma(n, -second, exact - near)
    return r, body.let("t", body.fma(n, -third, near - r) + lost), n_int


def _reduced_in_float64(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The same for a float32 ``x`` of any size, as values of float64."""
    bits = body.let("x_bits", body.bits(x))
    field = Call(body.integer, "bitwise_and", (bits, body.whole(0x7FF << 52)))
    first = body.whole(_FIRST_EXPONENT << 52)
    # Three bits of the exponent stay with ``m``.
    step = body.let("step", body.shift_right(maximum(field, first) - first, 52 + 3))
    m = body.let("m", body.from_bits(bits - body.shift_left(step, 52 + 3)))
    unit = body.table_lookup("unit", step, (*QUARTER_TURNS, *_BEHIND))
    rest = body.table_lookup("rest", step, (*QUARTER_TURNS_REST, *_BEHIND))
    turns = body.let("turns", m * unit)
    lost = body.fma(m, unit, body.real(0.0) - turns)
    n, n_int = body.nearest("n", (turns, 1.0))
    fraction = (turns - n) + body.fma(m, rest, lost)
    return body.let("turned", fraction * body.real(_HALF_PI_PARTS[0])), n_int


def _everywhere(x: PrimExpr, of_reduced: Callable[[Body, Reduced], PrimExpr]) -> PrimExpr:
    """What ``of_reduced`` makes of the reduced ``x``; NaN for infinities."""
    body = Body(x.dtype)
    x = body.let("x", x)
    usual = of_reduced(body, _reduced(body, x))
    if body.dtype.bits == 32:
        return body.result(usual)
    rare = Body(x.dtype)
    large = of_reduced(rare, large_angles.reduced(rare, x))
    is_large = body.magnitude(x) > body.real(_LARGEST_PLAIN)
    sides = rare.result(large + (x - x)), usual  # the difference of infinities is NaN
    return body.result(Call(body.dtype, "rarely", (is_large, *sides)))


def _has_bit(body: Body, number: PrimExpr, bit: int) -> PrimExpr:
    return Call(body.integer, "bitwise_and", (number, body.whole(bit))).equal(body.whole(bit))


def _circular(x: PrimExpr, quarter_turns: int) -> PrimExpr:
    """Sine of ``x`` advanced by so many quarter turns; the sign of a zero may be lost."""

    def of_reduced(body: Body, reduced: Reduced) -> PrimExpr:
        r, _, n = reduced
        quadrant = body.let("quadrant", n + body.whole(quarter_turns))
        z = body.let("z", r * r)
        sine, cosine = _COEFFICIENTS[body.dtype.bits]
        s = body.multiply_add(r * z, body.polynomial("s", z, sine), r)
        c = body.multiply_add(z * z, body.polynomial("c", z, cosine),
                              body.multiply_add(z, -0.5, 1.0))
        value = body.let("value", select(_has_bit(body, quadrant, 1), c, s))
        return select(_has_bit(body, quadrant, 2), body.real(0.0) - value, value)

    return _everywhere(x, of_reduced)


def _quotient(body: Body, reduced: Reduced) -> PrimExpr:
    """Sine over cosine, each with one rounding that counts: the second part of the remainder and
    what 1 - z / 2 is rounded by go into the small terms.
    """
    r, t, n = reduced
    z = body.let("z", r * r)
    sine, cosine = _COEFFICIENTS[body.dtype.bits]
    s = body.let("s", r + body.multiply_add(r * z, body.polynomial("s", z, sine), t))
    half = body.let("half", z * body.real(0.5))
    near = body.let("near", body.real(1.0) - half)
    small = body.multiply_add(z * z, body.polynomial("c", z, cosine), body.real(0.0) - r * t)
    c = body.let("c", near + (((body.real(1.0) - near) - half) + small))
    is_odd = body.let("is_odd", _has_bit(body, n, 1))
    return select(is_odd, body.real(0.0) - c, s) / select(is_odd, s, c)


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians; NaN for infinities."""
    body = Body(x.dtype)
    x = body.let("x", x)
    return body.result(select(x.equal(body.real(0.0)), x, _circular(x, 0)))


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    return _circular(x, 1)


def tan(x: PrimExpr) -> PrimExpr:
    """Tangent of radians; NaN for infinities."""
    body = Body(x.dtype)
    x = body.let("x", x)
    return body.result(select(x.equal(body.real(0.0)), x, _everywhere(x, _quotient)))
