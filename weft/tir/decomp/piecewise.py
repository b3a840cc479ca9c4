"""Piecewise polynomials for odd float32 functions that saturate (tanh, erf).

The intervals of ``|x|`` are half octaves, so the leading bits of ``|x|`` are the interval number.
Each lane looks up the coefficients of its interval by a register permute. So there are no
divisions, and no lane computes the case of another range.
"""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.tir.decomp import tables
from weft.tir.decomp.build import Body
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
