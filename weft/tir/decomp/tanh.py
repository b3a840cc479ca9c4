"""Hyperbolic tangent.

float32: one polynomial per interval of ``|x|``. float64: an odd polynomial for ``|x| < 1``, and
``1 - 2/(exp(2|x|) + 1)`` above.
"""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import TANH_64
from weft.tir.decomp.exp import lifted_exp_in
from weft.tir.decomp.piecewise import TANH, odd_in
from weft.tir.expr import PrimExpr, select

_SATURATED = 20.0


def tanh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic tangent within 2 ulp."""
    body = Body(x.dtype)
    x = body.let("x", x)
    value = odd_in(body, x, TANH) if body.dtype.bits == 32 else _tanh_64(body, x)
    return body.result(value)


def _tanh_64(body: Body, x: PrimExpr) -> PrimExpr:
    a = body.let("a", body.magnitude(x))
    # Clamp the argument of the polynomial, which would overflow for large |x|.
    small_x = body.let("small_x", select(a < body.real(1.0), a, body.real(0.0)))
    z = body.let("z", small_x * small_x)
    p = body.polynomial("p", z, TANH_64)
    small = body.multiply_add(small_x * z, p, small_x)
    # Above _SATURATED the result rounds to 1.
    large_x = body.let("large_x", select(a > body.real(_SATURATED), body.real(_SATURATED), a))
    e = lifted_exp_in(body, large_x + large_x)
    one = body.real(1.0)
    large = one - body.real(2.0) / (e + one)
    return body.with_sign_of(select(a < one, small, large), x)
