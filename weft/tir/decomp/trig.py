"""Sine, cosine and tangent: range reduction modulo pi/2, then a polynomial.

float32 is reduced in float64: ``x = m * 2**(8k)`` with ``m < 2**32``, and a table has ``2**(8k)``
radians in units of pi/2, modulo 4, to 106 bits. float64 subtracts a multiple of pi/2 in three parts
(Cody and Waite); ``large_angles`` reduces arguments that are too large for that. Results are within
2 ulp for all finite arguments.
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
# Up to this magnitude, the product of each part of pi/2 and the quotient is accurate enough.
_LARGEST_PLAIN = 2.0**30
_HALF_PI_PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_COEFFICIENTS = {32: (SIN_32, COS_32), 64: (SIN_64, COS_64)}
# Biased float64 exponent up to which ``k`` is 0, less 7.
_FIRST_EXPONENT = 1023 + 24
# Infinity and NaN select one of these entries behind the table.
_OUT_OF_RANGE = (math.nan,) * (16 - len(QUARTER_TURNS))


# (r, t, n): the remainder as a double-double number, and the multiple of pi/2 that was subtracted,
# as an integer of the width of the result.
Reduced: TypeAlias = "tuple[PrimExpr, PrimExpr, PrimExpr]"


def _reduced(body: Body, x: PrimExpr) -> Reduced:
    """``x`` modulo pi/2; for float64, up to ``_LARGEST_PLAIN``."""
    if body.dtype.bits == 32:
        inner = body.within(float64)
        rest, n_int = _reduced_in_float64(inner, cast(x, "float64"))
        r = body.let("r", cast(rest, "float32"))
        t = body.let("t", cast(rest - cast(r, "float64"), "float32"))
        return r, t, cast(n_int, body.integer.element)
    n, n_int = body.nearest("n", (x, _TWO_OVER_PI))
    first, second, third = _HALF_PI_PARTS
    exact = body.let("exact", body.fma(n, -first, x))
    near = body.let("near", body.fma(n, -second, exact))
    r = body.let("r", body.fma(n, -third, near))
    lost = body.fma(n, -second, exact - near)
    return r, body.let("t", body.fma(n, -third, near - r) + lost), n_int


def _reduced_in_float64(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The remainder of a float32 ``x`` of any magnitude, in float64, and the quotient."""
    bits = body.let("x_bits", body.bits(x))
    field = Call(body.integer, "bitwise_and", (bits, body.whole(0x7FF << 52)))
    first = body.whole(_FIRST_EXPONENT << 52)
    # The low three bits of the exponent remain in ``m``.
    step = body.let("step", body.shift_right(maximum(field, first) - first, 52 + 3))
    m = body.let("m", body.from_bits(bits - body.shift_left(step, 52 + 3)))
    unit = body.table_lookup("unit", step, (*QUARTER_TURNS, *_OUT_OF_RANGE))
    rest = body.table_lookup("rest", step, (*QUARTER_TURNS_REST, *_OUT_OF_RANGE))
    turns = body.let("turns", m * unit)
    lost = body.fma(m, unit, body.real(0.0) - turns)
    n, n_int = body.nearest("n", (turns, 1.0))
    fraction = (turns - n) + body.fma(m, rest, lost)
    return body.let("angle", fraction * body.real(_HALF_PI_PARTS[0])), n_int


def _everywhere(x: PrimExpr, of_reduced: Callable[[Body, Reduced], PrimExpr]) -> PrimExpr:
    """``of_reduced`` of the reduced ``x``, for all magnitudes; NaN for infinities."""
    body = Body(x.dtype)
    x = body.let("x", x)
    usual = of_reduced(body, _reduced(body, x))
    if body.dtype.bits == 32:
        return body.result(usual)
    rare = Body(x.dtype)
    large = of_reduced(rare, large_angles.reduced(rare, x))
    is_large = body.magnitude(x) > body.real(_LARGEST_PLAIN)
    sides = rare.result(large + (x - x)), usual  # inf - inf is NaN
    return body.result(Call(body.dtype, "rarely", (is_large, *sides)))


def _has_bit(body: Body, number: PrimExpr, bit: int) -> PrimExpr:
    return Call(body.integer, "bitwise_and", (number, body.whole(bit))).equal(body.whole(bit))


def _circular(x: PrimExpr, quarter_turns: int) -> PrimExpr:
    """``sin(x + quarter_turns * pi/2)``; the sign of a zero result is unspecified."""

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
    """Sine over cosine, each with a single significant rounding.

    The low part of the remainder and the rounding error of ``1 - z / 2`` are added to small terms.
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
