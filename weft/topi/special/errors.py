"""Error functions, their inverses, and the quantiles of the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from weft.topi.special import coefficients as c
from weft.topi.special.arithmetic import Arithmetic, on, polynomial

# (x - 3.75) / (x + 3.75) maps positive x to the interval from -1 to 1 of a polynomial.
_POLE = 3.75
_HUGE = 1e300
# sqrt(-log(q)) at the interval borders of the polynomials that invert erfc.
_NEAR, _MIDDLE, _FAR = 3.25, 8.0, 28.0


def erfcx(m: Arithmetic, x: Any) -> Any:
    """exp(x**2) erfc(x), by a polynomial in (x - 3.75) / (x + 3.75) for positive x."""
    size = m.abs(x)
    bounded = m.choose(size > _HUGE, _HUGE, size)
    ratio = polynomial(c.ERFCX, (bounded - _POLE) / (bounded + _POLE)) / (1.0 + 2.0 * bounded)
    positive = m.choose(size > _HUGE, 0.0, ratio)
    value = m.choose(x < 0.0, 2.0 * m.exp(x * x) - positive, positive)
    return m.choose(m.equal(x, x), value, x)


def erfc(m: Arithmetic, x: Any) -> Any:
    """1 - erf(x), accurate where it is small."""
    size = m.abs(x)
    # exp(-40**2) is 0 in float64: larger arguments give the same.
    bounded = m.choose(size > 40.0, 40.0, size)
    tail = m.exp(-1.0 * bounded * bounded) * erfcx(m, bounded)
    far = m.choose(x < 0.0, 2.0 - tail, tail)
    # Below 0.5 the difference is about as large as its terms: nothing cancels.
    value = m.choose(size < 0.5, 1.0 - m.erf(x), far)
    return m.choose(m.equal(x, x), value, x)


def _erfc_inverse(m: Arithmetic, q: Any) -> Any:
    """The inverse of erfc for ``q`` up to 0.28; infinite at 0."""
    # erfc(x) falls like exp(-x**2), so that its inverse is almost linear in w.
    w = m.sqrt(-1.0 * m.log(q))
    near = on(1.125, _NEAR, c.ERFCINV_NEAR, w)
    middle = on(_NEAR, _MIDDLE, c.ERFCINV_MIDDLE, w)
    far = on(1 / _FAR, 1 / _MIDDLE, c.ERFCINV_FAR, 1.0 / w) * w
    return m.choose(w < _NEAR, near, m.choose(w < _MIDDLE, middle, far))


def _erf_inverse(x: Any) -> Any:
    """The inverse of erf for ``x`` between -0.75 and 0.75."""
    return on(0.0, 0.5625, c.ERFINV_MIDDLE, x * x) * x


def erfinv(m: Arithmetic, x: Any) -> Any:
    """The inverse of erf: infinite at -1 and 1, NaN outside."""
    size = m.abs(x)
    # Exact for sizes from 1/2 on (Sterbenz); it is used from 3/4 on.
    tail = _erfc_inverse(m, 1.0 - size)
    signed = m.choose(x < 0.0, -1.0 * tail, tail)
    return m.choose(size < 0.75, _erf_inverse(x), signed)


def ndtri(m: Arithmetic, p: Any) -> Any:
    """The quantile of the normal distribution: infinite at 0 and 1, NaN outside."""
    low = p < 0.5
    tail = m.choose(low, 2.0 * p, 2.0 - 2.0 * p)
    far = _erfc_inverse(m, tail)
    signed = m.choose(low, -1.0 * far, far)
    middle = _erf_inverse(2.0 * p - 1.0)
    return m.choose(m.abs(p - 0.5) < 0.375, middle, signed) * math.sqrt(2)
