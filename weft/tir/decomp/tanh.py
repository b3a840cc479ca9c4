"""Hyperbolic tangent: an odd polynomial up to 1, ``1 - 2/(exp(2|x|) + 1)`` beyond."""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import TANH_32, TANH_64
from weft.tir.decomp.exp import exp_in
from weft.tir.expr import PrimExpr, select

FAR = 20.0
_COEFFICIENTS = {32: TANH_32, 64: TANH_64}


def tanh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic tangent within 2 ulp."""
    body = Body(x.dtype)
    x = body.let("x", x)
    a = body.let("a", body.magnitude(x))
    # Beyond, the polynomial would overflow for nothing.
    near = body.let("near", select(a < body.real(1.0), a, body.real(0.0)))
    z = body.let("z", near * near)
    p = body.polynomial("p", z, _COEFFICIENTS[body.dtype.bits])
    small = body.fma(near * z, p, near)
    # From here on the result is 1 in either precision.
    far = body.let("far", select(a > body.real(FAR), body.real(FAR), a))
    e = exp_in(body, far + far, is_bounded=True)
    one = body.real(1.0)
    large = one - body.real(2.0) / (e + one)
    return body.result(body.with_sign_of(select(a < one, small, large), x))
