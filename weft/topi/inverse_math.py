"""Trigonometric and hyperbolic functions and their inverses, from exp, log, sin, cos and sqrt."""

from __future__ import annotations

import math

from weft import te
from weft.tir.expr import PrimExpr, const, select

# atan reduces its argument to at most tan(pi / 16), where so many terms reach 2**-53.
_ATAN_TERMS = 12


def _magnitude_with_sign(x: PrimExpr, magnitude: PrimExpr) -> PrimExpr:
    """``magnitude`` with the sign of ``x``; ``x`` itself for zeros."""
    zero = const(0, x.dtype)
    return select(x < zero, zero - magnitude, select(x.equal(zero), x, magnitude))


def tan(x: PrimExpr) -> PrimExpr:
    """Tangent, as one intrinsic."""
    return te.tan(x)


def log1p(x: PrimExpr) -> PrimExpr:
    """log(1 + x), accurate near 0: the rounding error of 1 + x is corrected by a ratio (Kahan)."""
    one = const(1, x.dtype)
    w = x + one
    kept = w.equal(one)
    safe = select(kept, const(2, x.dtype), w)
    # For large x the correction is 1; infinity divided by infinity would be NaN.
    ratio = select(w > const(1e30 if x.dtype.bits > 16 else 6e4, x.dtype), one, x / (safe - one))
    return select(kept, x, te.log(safe) * ratio)


def expm1(x: PrimExpr) -> PrimExpr:
    """exp(x) - 1, accurate near 0, by the inverse of ``log1p``'s correction (Kahan)."""
    one = const(1, x.dtype)
    u = te.exp(x)
    kept = u.equal(one)
    large = te.abs(x) > one
    safe = select(kept, const(2, x.dtype), u)
    log = te.log(safe)
    corrected = (u - one) * x / select(large, one, log)
    return select(kept, x, select(large, u - one, corrected))


def sinh(x: PrimExpr) -> PrimExpr:
    """(e**x - e**-x) / 2; above 20 as e**(x/2) / 2 * e**(x/2), which overflows later."""
    m = te.abs(x)
    half = te.exp(m * const(0.5, x.dtype))
    large = half * const(0.5, x.dtype) * half
    grown = expm1(m)
    small = (grown + grown / (grown + const(1, x.dtype))) * const(0.5, x.dtype)
    limit = const(20.0 if x.dtype.bits > 16 else 8.0, x.dtype)
    return _magnitude_with_sign(x, select(m > limit, large, small))


def cosh(x: PrimExpr) -> PrimExpr:
    """(e**x + e**-x) / 2, with the powers halved first to avoid early overflow."""
    half = te.exp(te.abs(x) * const(0.5, x.dtype))
    scaled = half * const(0.5, x.dtype)
    return scaled * half + const(0.5, x.dtype) / half / half


def asinh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic sine."""
    one = const(1, x.dtype)
    m = te.abs(x)
    near = log1p(m + m * m / (one + te.sqrt(m * m + one)))
    limit = const(1e9 if x.dtype.bits > 16 else 100.0, x.dtype)
    # Beyond the limit, adding 1 to m**2 does not change it, and m**2 may overflow.
    far = te.log(m) + const(math.log(2.0), x.dtype)
    return _magnitude_with_sign(x, select(m > limit, far, near))


def acosh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic cosine; NaN below 1."""
    t = x - const(1, x.dtype)
    near = log1p(t + te.sqrt(t * (t + const(2, x.dtype))))
    limit = const(1e9 if x.dtype.bits > 16 else 100.0, x.dtype)
    known = select(x > limit, te.log(x) + const(math.log(2.0), x.dtype), near)
    return select(x < const(1, x.dtype), const(math.nan, x.dtype), known)


def atanh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic tangent: infinite at -1 and 1, NaN outside."""
    m = te.abs(x)
    half = log1p((m + m) / (const(1, x.dtype) - m)) * const(0.5, x.dtype)
    return _magnitude_with_sign(x, half)


def atan(x: PrimExpr) -> PrimExpr:
    """Arc tangent: below pi / 4 halve the angle twice, then sum the Taylor series."""
    one = const(1, x.dtype)
    m = te.abs(x)
    beyond = m > one
    t = select(beyond, one / select(beyond, m, one), m)
    for _ in range(2):
        t = t / (one + te.sqrt(one + t * t))
    square = t * t
    series = const(0, x.dtype)
    for n in reversed(range(_ATAN_TERMS)):
        series = series * square + const((-1.0) ** n / (2 * n + 1), x.dtype)
    # Two halvings of the angle, undone.
    angle = series * t * const(4, x.dtype)
    return _magnitude_with_sign(x, select(beyond, const(math.pi / 2, x.dtype) - angle, angle))


def asin(x: PrimExpr) -> PrimExpr:
    """NaN beyond -1 and 1."""
    one = const(1, x.dtype)
    return atan(x / te.sqrt((one - x) * (one + x)))


def acos(x: PrimExpr) -> PrimExpr:
    """NaN beyond -1 and 1."""
    one = const(1, x.dtype)
    return atan(te.sqrt((one - x) / (one + x))) * const(2, x.dtype)
