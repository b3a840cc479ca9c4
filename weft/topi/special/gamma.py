"""Error functions and gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable
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


# Recurrence steps: arguments are at least 0 after reflection, and the series start at 8.
_STEPS = 8
# B(2k) / (2k (2k - 1)), of Stirling's series (DLMF 5.11.1).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156,
             -3617 / 122400, 43867 / 244188)
# B(2k) / 2k, of the digamma function's (DLMF 5.11.2).
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_ZETA_TERMS = 8


def _power_series(numbers: tuple[float, ...], square: Any) -> Any:
    total = square * numbers[-1] + numbers[-2]
    for number in reversed(numbers[:-2]):
        total = total * square + number
    return total


def _to_integer(m: Arithmetic, x: Any) -> Any:
    """The signed distance to the nearest integer, exact."""
    return x - m.round(x)


def lgamma(m: Arithmetic, x: Any) -> Any:
    """The logarithm of |gamma(x)|: infinite at zero and at negative integers.

    Stirling's series for x >= 8, reached by the recurrence gamma(x + 1) = x gamma(x); a polynomial
    around the zeros at 1 and 2; reflection below zero (DLMF 5.5.3).
    """
    negative = x < 0.0
    y = m.choose(negative, 1.0 - x, x)
    shifted: Any = y
    product: Any = 1.0
    for _ in range(_STEPS):
        small = shifted < 8.0
        product = m.choose(small, product * shifted, product)
        shifted = m.choose(small, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    series = _power_series(_STIRLING, inverse * inverse) * inverse
    # (x - 1/2) log x - x + log(2 pi) / 2, arranged so that no two large terms are subtracted.
    stirling = (shifted - 0.5) * (m.log(shifted) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
    far = stirling + series - m.log(product)
    # The factors of the zeros at 1 and 2 are explicit: there Stirling's series would lose its
    # relative accuracy to cancellation.
    near = on(0.7, 2.3, c.LGAMMA, y) * (y - 1.0) * (y - 2.0)
    value = m.choose(m.both(y > 0.7, y < 2.3), near, far)
    # sin(pi x) by the distance to the nearest integer: pi * x loses the fraction of a large x.
    sine = m.sin(m.abs(_to_integer(m, x)) * math.pi)
    value = m.choose(negative, m.log(math.pi / sine) - value, value)
    return m.choose(m.equal(m.abs(x), math.inf), math.inf, value)


def digamma(m: Arithmetic, x: Any) -> Any:
    """The derivative of lgamma: infinite at zero, with opposite sign; NaN at negative integers."""
    reflected = x < 0.5
    y = m.choose(reflected, 1.0 - x, x)
    total: Any = 0.0
    for _ in range(_STEPS):
        small = y < 8.0
        total = m.choose(small, total - 1.0 / y, total)
        y = m.choose(small, y + 1.0, y)
    inverse = 1.0 / y
    square = inverse * inverse
    value = total + m.log(y) - 0.5 * inverse - _power_series(_DIGAMMA, square) * square
    distance = _to_integer(m, x)
    angle = distance * math.pi
    # digamma(x) = digamma(1 - x) - pi / tan(pi x) (DLMF 5.5.4).
    by_reflection = value - m.cos(angle) / m.sin(angle) * math.pi
    at_integer = m.both(m.equal(distance, 0.0), x < 0.0)
    below = m.choose(at_integer, math.nan, m.choose(m.equal(x, 0.0), -1.0 / x, by_reflection))
    return m.choose(reflected, below, value)


Power = Callable[[Any], Any]


def _zeta_of_positive(s: Any, q: Any, power: Power) -> Any:
    """The sum of ``power(q + k)`` = (q + k)**-s over k by Euler and Maclaurin (DLMF 25.11.5).

    For s > 1 and q > 0.
    """
    total = power(q)
    for k in range(1, _ZETA_TERMS):
        total = total + power(q + float(k))
    end = q + float(_ZETA_TERMS)
    last = power(end)
    rest = last * (end / (s - 1.0) + 0.5)
    inverse = 1.0 / (end * end)
    factor, falling = s, last / end
    # Term k: B(2k) / (2k)! * s (s + 1) ... (s + 2k - 2) * end**(1 - s - 2k).
    for k, bernoulli in enumerate(_BERNOULLI, start=1):
        rest = rest + factor * falling * (bernoulli / math.factorial(2 * k))
        factor = factor * (s + float(2 * k - 1)) * (s + float(2 * k))
        falling = falling * inverse
    return total + rest


def zeta(m: Arithmetic, s: Any, q: Any) -> Any:
    """The Hurwitz zeta function: the sum of (q + k)**-s over k >= 0.

    Infinite for s = 1 and for integers q below 1, NaN for s below 1, and for q below 0 unless s is
    an integer.
    """
    is_even = m.equal(_to_integer(m, s * 0.5), 0.0)
    value = _zeta(m, s, q, lambda a: m.exp(-1.0 * s * m.log(a)), m.choose(is_even, 1.0, -1.0))
    value = m.choose(m.both(q < 0.0, m.floor(s) < s), math.nan, value)
    return m.choose(m.equal(s, 1.0), math.inf, m.choose(s < 1.0, math.nan, value))


def _zeta(m: Arithmetic, s: Any, q: Any, power: Power, sign: Any) -> Any:
    """The Hurwitz zeta function for s > 1; for negative q, s is an integer and ``sign`` is (-1)**s.

    Then the sum is split by the sign of q + k into sums over positive numbers.
    """
    fraction = q - m.floor(q)
    positive = q > 0.0
    direct = _zeta_of_positive(s, m.choose(positive, q, fraction), power)
    span = (_zeta_of_positive(s, m.choose(positive, 1.0, 1.0 - fraction), power)
            - _zeta_of_positive(s, m.choose(positive, 1.0, 1.0 - q), power))
    value = direct + m.choose(positive, 0.0, span * sign)
    return m.choose(m.both(q <= 0.0, m.equal(fraction, 0.0)), math.inf, value)


def polygamma(m: Arithmetic, order: int, x: Any) -> Any:
    """The ``order``-th derivative of digamma (DLMF 5.15.3, 25.11.12)."""
    if order == 0:
        return digamma(m, x)
    sign = 1.0 if order % 2 else -1.0
    value = _zeta(m, order + 1.0, x, lambda a: _inverse_power(a, order + 1), sign)
    return value * (math.exp(math.lgamma(order + 1.0)) * sign)


def _inverse_power(x: Any, n: int) -> Any:
    """x**-n by squaring."""
    base: Any = 1.0 / x
    total: Any = None
    while n:
        if n % 2:
            total = base if total is None else total * base
        n //= 2
        base = base * base if n else base
    return total
