"""Error function: an odd polynomial up to 1, ``1 - exp(-g(|x|))`` beyond.

``g = -log(erfc)`` is smooth and nearly quadratic, so a polynomial in ``|x|`` gives it.
"""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import ERF_32, ERF_64, LOG_ERFC_32, LOG_ERFC_64
from weft.tir.decomp.exp import exp_in
from weft.tir.expr import PrimExpr, select

# The polynomials, and the middle and end of the interval of the second; past it erf is 1.
_COEFFICIENTS = {32: (ERF_32, LOG_ERFC_32, 2.5, 4.0), 64: (ERF_64, LOG_ERFC_64, 3.5, 6.0)}


def erf(x: PrimExpr) -> PrimExpr:
    """Error function within 2 ulp."""
    body = Body(x.dtype)
    inner, outer, middle, end = _COEFFICIENTS[body.dtype.bits]
    x = body.let("x", x)
    a = body.let("a", body.magnitude(x))
    one = body.real(1.0)
    near = body.let("near", select(a < one, a, body.real(0.0)))
    p = body.polynomial("p", body.let("z", near * near), inner)
    small = body.fma(near, p, near)
    far = select(a > body.real(end), body.real(end), a)
    t = body.let("t", far - body.real(middle))
    g = body.polynomial("g", t, outer)
    large = one - exp_in(body, body.real(0.0) - g, is_bounded=True)
    return body.result(body.with_sign_of(select(a < one, small, large), x))
