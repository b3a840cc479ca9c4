"""``pow`` as C defines it: ``exp(y * log|x|)``, then the sign and the special cases."""

from __future__ import annotations

import math

from weft.ir.dtype import float64
from weft.tir.decomp.build import INFINITY, Body
from weft.tir.decomp.double_double import log_times
from weft.tir.decomp.exp import exp_in
from weft.tir.decomp.log import log_with_limits_in
from weft.tir.expr import Call, PrimExpr, all_of, any_of, cast, not_, select


def _magnitude(body: Body, a: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``a**y`` for ``a >= 0``: float32 in float64, float64 with a double-double logarithm."""
    if body.dtype.bits == 32:
        wide = body.within(float64)
        product = cast(y, "float64") * log_with_limits_in(wide, cast(a, "float64"))
        return body.let("power", cast(exp_in(wide, product), "float32"))
    high, low = log_times(body, a, y)
    rough = body.let("rough", y * log_with_limits_in(body, a))
    is_finite = body.magnitude(rough) < body.real(INFINITY)
    e = exp_in(body, select(is_finite, high, rough))
    # exp(high + low) = exp(high) * (1 + low); for infinities the low part is not used.
    is_ordinary = all_of(is_finite, e < body.real(INFINITY))
    return body.let("power", select(is_ordinary, body.fma(e, low, e), e))


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``x`` to the power ``y``."""
    body = Body(x.dtype)
    zero, one = body.real(0.0), body.real(1.0)
    x, y = body.let("x", x), body.let("y", y)
    a = body.let("a", body.magnitude(x))
    magnitude = select(all_of(a.equal(one), y.equal(y)), one, _magnitude(body, a, y))
    is_whole = body.let("is_whole", _is_whole(body, y))
    half = body.let("half", y * body.real(0.5))
    is_odd = all_of(is_whole, _floor(body, half).not_equal(half))
    signed = select(is_odd, body.with_sign_of(magnitude, x), magnitude)
    is_imaginary = all_of(x < zero, not_(is_whole), a < body.real(INFINITY))
    value = select(is_imaginary, body.real(math.nan), signed)
    return body.result(select(any_of(y.equal(zero), x.equal(one)), one, value))


def _floor(body: Body, x: PrimExpr) -> PrimExpr:
    return Call(body.dtype, "floor", (x,))


def _is_whole(body: Body, y: PrimExpr) -> PrimExpr:
    return _floor(body, y).equal(y)
