"""Hyperbolic tangent. float32: a polynomial for each interval.

float64: an odd polynomial up to 1, ``1 - 2/(exp(2|x|) + 1)`` beyond.
"""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import TANH_64
from weft.tir.decomp.exp import lifted_exp_in
from weft.tir.decomp.piecewise import TANH, odd_in
from weft.tir.expr import PrimExpr, select

_FAR = 20.0


def tanh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic tangent within 2 ulp."""
    body = Body(x.dtype)
    x = body.let("x", x)
    value = odd_in(body, x, TANH) if body.dtype.bits == 32 else _tanh_64(body, x)
    return body.result(value)


def _tanh_64(body: Body, x: PrimExpr) -> PrimExpr:
    a = body.let("a", body.magnitude(x))
    # Beyond, the polynomial would overflow for nothing.
    near = body.let("near", select(a < body.real(1.0), a, body.real(0.0)))
    z = body.let("z", near * near)
    p = body.polynomial("p", z, TANH_64)
    small = body.multiply_add(near * z, p, near)
    # From here on the result is 1.
    far = body.let("far", select(a > body.real(_FAR), body.real(_FAR), a))
    e = lifted_exp_in(body, far + far)
    one = body.real(1.0)
    large = one - body.real(2.0) / (e + one)
    return body.with_sign_of(select(a < one, small, large), x)
