"""Error function.

float32: one polynomial per interval of ``|x|``. float64: an odd polynomial for ``|x| < 1``, and
``1 - exp(-g(|x|))`` above. ``g = -log(erfc)`` is smooth and nearly quadratic, so a polynomial
approximates it.
"""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import ERF_64, LOG_ERFC_64
from weft.tir.decomp.exp import lifted_exp_in
from weft.tir.decomp.piecewise import ERF, odd_in
from weft.tir.expr import PrimExpr, select

# Centre and end of the interval of the second polynomial; above it, erf rounds to 1.
_MIDDLE, _END = 3.5, 6.0


def erf(x: PrimExpr) -> PrimExpr:
    """Error function within 2 ulp."""
    body = Body(x.dtype)
    x = body.let("x", x)
    value = odd_in(body, x, ERF) if body.dtype.bits == 32 else _erf_64(body, x)
    return body.result(value)


def _erf_64(body: Body, x: PrimExpr) -> PrimExpr:
    a = body.let("a", body.magnitude(x))
    one = body.real(1.0)
    small_x = body.let("small_x", select(a < one, a, body.real(0.0)))
    p = body.polynomial("p", body.let("z", small_x * small_x), ERF_64)
    small = body.multiply_add(small_x, p, small_x)
    large_x = select(a > body.real(_END), body.real(_END), a)
    t = body.let("t", large_x - body.real(_MIDDLE))
    g = body.polynomial("g", t, LOG_ERFC_64)
    large = one - lifted_exp_in(body, body.real(0.0) - g)
    return body.with_sign_of(select(a < one, small, large), x)
