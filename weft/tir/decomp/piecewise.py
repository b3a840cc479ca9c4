"""Piecewise polynomials for odd float32 functions that saturate (tanh, erf).

The intervals of ``|x|`` are half octaves, so the leading bits of ``|x|`` are the interval number.
Each lane looks up the coefficients of its interval by a register permute. So there are no
divisions, and no lane computes the case of another range.

float64 has an odd polynomial for ``|x| < 1``. Above, ``tanh`` is ``1 - 2/(exp(2|x|) + 1)`` and
``erf`` is ``1 - exp(-g(|x|))``: ``g = -log(erfc)`` is smooth and nearly quadratic, so a polynomial
approximates it.
"""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.tir.decomp import tables
from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import ERF_64, LOG_ERFC_64, TANH_64
from weft.tir.decomp.exp import lifted_exp_in
from weft.tir.expr import PrimExpr, maximum, select

# The first interval is [0, 2**-4]; it has the number of the half octave below 2**-4.
_FIRST_BITS = 0x3D400000
_NUMBER_SHIFT = 22


@dataclass(frozen=True, slots=True)
class PiecewisePolynomial:
    """A piecewise polynomial, constant from ``end`` on.

    ``centres`` has one entry per interval, ``coefficients`` one tuple per power with an entry per
    interval, constants first. In the first interval the polynomial is ``f(x) - x``.
    """

    end: float
    centres: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]


TANH = PiecewisePolynomial(tables.TANH_END, tables.TANH_CENTRES, tables.TANH_COEFFICIENTS)
ERF = PiecewisePolynomial(tables.ERF_END, tables.ERF_CENTRES, tables.ERF_COEFFICIENTS)


def _by_number(entries: tuple[float, ...]) -> tuple[float, ...]:
    """The entries rotated so that interval numbers index them modulo their count."""
    start = (_FIRST_BITS >> _NUMBER_SHIFT) % len(entries)
    return entries[-start:] + entries[:-start]


def odd_in(body: Body, x: PrimExpr, function: PiecewisePolynomial) -> PrimExpr:
    """The function at ``x`` within 2 ulp, as values of ``body``; NaN propagates."""
    a = body.magnitude(x)
    a = body.let("a", select(a > body.real(function.end), body.real(function.end), a))
    leading = maximum(body.bits(a), body.whole(_FIRST_BITS))
    number = body.let("number", body.shift_right(leading, _NUMBER_SHIFT))
    t = body.let("t", a - body.table_lookup("centre", number, _by_number(function.centres)))
    constant, *rest = (body.table_lookup("c", number, _by_number(c)) for c in function.coefficients)
    slope = body.polynomial("slope", t, rest)
    # In the first interval the constant is 0 and the base is ``t``, that is ``x``. In the others
    # the constant is larger than ``t``. As integers, positive floats compare as such, and above
    # negative ones, so an integer maximum selects the base.
    base = body.from_bits(maximum(body.bits(constant), body.bits(t)))
    return body.with_sign_of(body.multiply_add(slope, t, base), x)


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
