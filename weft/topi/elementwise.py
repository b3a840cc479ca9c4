"""Elementwise functions of one tensor.

Trigonometric and hyperbolic functions and their inverses follow from exp, log, sin, cos and sqrt.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft import te
from weft.ir.dtype import DType, float32, float64
from weft.tir.expr import (
    PrimExpr,
    call,
    const,
    maximum,
    minimum,
    not_,
    select,
)
from weft.tir.expr import (
    cast as prim_cast,
)


def apply(
    x: te.Tensor, function: Callable[[PrimExpr], PrimExpr], name: str = "elementwise"
) -> te.Tensor:
    """``function`` applied to every element."""
    return te.compute(x.shape, lambda *i: function(x[i]), name=name)


def intrinsic(x: te.Tensor, name: str) -> te.Tensor:
    """The intrinsic ``name`` of ``weft.tir.intrinsics`` applied to every element."""
    return apply(x, lambda v: call(v.dtype, name, v), name)


def logarithm(x: te.Tensor, log_of_base: float) -> te.Tensor:
    """The logarithm to a base, computed in the next wider dtype so that exact powers are exact."""
    wide = float32 if x.dtype.bits < 32 else float64
    scale = const(1.0 / log_of_base, wide)
    return apply(x, lambda v: (te.log(v.astype(wide)) * scale).astype(x.dtype), "log")


def identity(x: te.Tensor) -> te.Tensor:
    """A copy of ``x``."""
    return apply(x, lambda v: v, "copy")


def negative(x: te.Tensor) -> te.Tensor:
    """``-x``; a multiplication for floats, so that the sign of zero changes too."""
    if x.dtype.is_float:
        return apply(x, lambda v: v * const(-1, v.dtype), "negative")
    return apply(x, lambda v: const(0, v.dtype) - v, "negative")


def absolute(x: te.Tensor) -> te.Tensor:
    """``|x|``; unsigned integers are unchanged."""
    if x.dtype.is_float:
        return intrinsic(x, "abs")
    if x.dtype.code == "uint":
        return apply(x, lambda v: v, "abs")
    return apply(x, lambda v: maximum(v, const(0, v.dtype) - v), "abs")


def sign(x: te.Tensor) -> te.Tensor:
    """The sign: -1, 0 or 1; NaN for NaN."""

    def of(v: PrimExpr) -> PrimExpr:
        zero = const(0, v.dtype)
        # Zeros and NaN pass through both selections unchanged.
        positive = select(v > zero, const(1, v.dtype), v)
        if v.dtype.code == "uint":
            return positive
        return select(v < zero, const(-1, v.dtype), positive)

    return apply(x, of, "sign")


def rounding(x: te.Tensor, name: str) -> te.Tensor:
    """``floor``, ``ceil``, ``round`` (half to even); integers are unchanged."""
    return intrinsic(x, name) if x.dtype.is_float else apply(x, lambda v: v, name)


def cast(x: te.Tensor, dtype: DType) -> te.Tensor:
    """``x`` converted to ``dtype``; bool means not equal to zero."""

    def of(v: PrimExpr) -> PrimExpr:
        if dtype.is_bool and not v.dtype.is_bool:
            return v.not_equal(const(0, v.dtype))
        if v.dtype.is_bool and not dtype.is_bool:
            return select(v, const(1, dtype), const(0, dtype))
        return prim_cast(v, dtype)

    return apply(x, of, "cast")


def clip(x: te.Tensor, low: float, high: float) -> te.Tensor:
    """``min(max(x, low), high)``; NaN for NaN."""

    def of(v: PrimExpr) -> PrimExpr:
        return minimum(maximum(v, _bound(low, v.dtype)), _bound(high, v.dtype))

    return apply(x, of, "clip")


def _bound(value: float, dtype: DType) -> PrimExpr:
    """``value`` as a constant of ``dtype``, saturated to the range of integer dtypes."""
    if dtype.is_float:
        return const(value, dtype)
    low = 0 if dtype.code == "uint" else -(1 << (dtype.bits - 1))
    high = (1 << (dtype.bits - (dtype.code != "uint"))) - 1
    return const(int(min(max(value, low), high)), dtype)


def logical_not(x: te.Tensor) -> te.Tensor:
    """Whether each element is false (zero)."""
    return apply(x, not_, "logical_not")


def relu(x: te.Tensor) -> te.Tensor:
    """``max(x, 0)``."""
    return apply(x, lambda v: maximum(v, const(0, v.dtype)), "relu")


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """``x`` if positive, else ``alpha * x``."""
    return apply(
        x,
        lambda v: select(v > const(0, v.dtype), v, v * const(alpha, v.dtype)),
        "leaky_relu",
    )


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
