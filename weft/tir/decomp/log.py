"""Natural logarithm: ``x = 2**e * m`` with ``2/3 <= m < 4/3``, and a series in ``f = m - 1``."""

from __future__ import annotations

import math

from weft.tir.decomp.build import INFINITY, Body
from weft.tir.decomp.coefficients import ATANH_64, LOG_32
from weft.tir.decomp.exp import LN2_PARTS
from weft.tir.expr import PrimExpr, select

_TWO_THIRDS_BITS = {32: 0x3F2AAAAB, 64: 0x3FE5555555555555}
_SMALLEST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}


def split(body: Body, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """``(e, f)`` with ``x == 2**e * (1 + f)``, both floats, for finite ``x`` above zero."""
    form = body.format
    is_small = x < body.real(_SMALLEST_NORMAL[body.dtype.bits])
    scaled = select(is_small, x * body.real(2.0**form.mantissa_bits), x)
    bits = body.let("bits", body.bits(scaled))
    two_thirds = body.whole(_TWO_THIRDS_BITS[body.dtype.bits])
    exponent = body.let("exponent", body.shift_right(bits - two_thirds, form.mantissa_bits))
    mantissa = body.from_bits(bits - body.shift_left(exponent, form.mantissa_bits))
    f = body.let("f", mantissa - body.real(1.0))
    lifted = select(is_small, exponent - body.whole(form.mantissa_bits), exponent)
    return body.let("e", lifted.astype(body.dtype)), f


def log_in(body: Body, x: PrimExpr) -> PrimExpr:
    """The logarithm of a finite ``x`` above zero, within 1 ulp."""
    e, f = split(body, x)
    high, low = LN2_PARTS[body.dtype.bits]
    square = body.let("square", f * f)
    if body.dtype.bits == 32:
        p = body.polynomial("p", f, LOG_32)
        tail = body.multiply_add(square, body.multiply_add(f, p, -0.5), e * body.real(low))
        return body.let("log", body.multiply_add(e, high, f + tail))
    # log(1 + f) = f - (f*f/2 - s*(f*f/2 + R)) with s = f/(2 + f), as in fdlibm.
    s = body.let("s", f / (f + body.real(2.0)))
    z = body.let("z", s * s)
    r = body.polynomial("r", z, ATANH_64) * z
    half = body.let("half_square", square * body.real(0.5))
    tail = body.multiply_add(s, half + r, e * body.real(low)) - half
    return body.let("log", body.multiply_add(e, high, f + tail))


def log_with_limits_in(body: Body, x: PrimExpr) -> PrimExpr:
    """The logarithm of any ``x``."""
    zero, infinity = body.real(0.0), body.real(INFINITY)
    above = select(x < infinity, log_in(body, x), x)  # infinity itself
    below = select(x.equal(zero), body.real(-INFINITY), body.real(math.nan))
    return body.let("log", select(x > zero, above, below))


def log(x: PrimExpr) -> PrimExpr:
    """Natural logarithm; ``-inf`` at zero, NaN below."""
    body = Body(x.dtype)
    return body.result(log_with_limits_in(body, body.let("x", x)))
