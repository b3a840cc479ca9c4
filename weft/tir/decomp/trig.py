"""Sine and cosine: the argument less a multiple of a quarter turn, then a polynomial.

float32 reduces its argument in float64, float64 with three parts of pi/2 and fused
multiply-adds. Both are within 2 ulp up to |x| = 1e5 (float32: up to 1e8); the error grows beyond.
"""

from __future__ import annotations

from weft.ir.dtype import float64
from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import COS_32, COS_64, SIN_32, SIN_64
from weft.tir.expr import Call, PrimExpr, cast, select

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI_PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_COEFFICIENTS = {32: (SIN_32, COS_32), 64: (SIN_64, COS_64)}


def _reduced(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """``(r, n)``: ``x`` less ``n`` quarter turns, and ``n`` as an integer of the result's width."""
    if body.dtype.bits == 64:
        n, n_int = body.nearest("n", (x, _TWO_OVER_PI))
        r = x
        for part in _HALF_PI_PARTS:
            r = body.fma(n, -part, r)
        return body.let("r", r), n_int
    wide = body.within(float64)
    x64 = body.let("x64", cast(x, "float64"))
    n, n_int = wide.nearest("n", (x64, _TWO_OVER_PI))
    r64 = wide.fma(n, -_HALF_PI_PARTS[1], wide.fma(n, -_HALF_PI_PARTS[0], x64))
    return body.let("r", cast(r64, "float32")), cast(n_int, body.integer.element)


def _circular(body: Body, x: PrimExpr, quarter_turns: int) -> PrimExpr:
    """Sine of ``x`` advanced by so many quarter turns; the sign of a zero may be lost."""
    r, n = _reduced(body, x)
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
    return body.result(select(x.equal(body.real(0.0)), x, _circular(body, x, 0)))


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    body = Body(x.dtype)
    return body.result(_circular(body, body.let("x", x), 1))
