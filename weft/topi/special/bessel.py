"""Bessel functions of orders 0 and 1 (J, Y, I, K), and Airy's function Ai.

Polynomials near zero; further out, polynomials in 1 / x times the asymptotic form.
"""

from __future__ import annotations

import math
from typing import Any

from weft.topi.special import coefficients as c
from weft.topi.special.arithmetic import Arithmetic, on, polynomial, slope_on

_SQUARES = 64.0  # of arguments up to 8


def _first_kind(m: Arithmetic, size: Any, near: Any, far_numbers: tuple[float, ...]) -> Any:
    # Both branches of ``choose`` are computed: the clamp keeps the far one in the range of its
    # polynomial.
    bounded = m.choose(size < 8.0, 8.0, size)
    far = on(0.0, 0.125, far_numbers, 1.0 / bounded) / m.sqrt(bounded)
    return m.choose(size <= 8.0, near, far)


def modified_bessel_i0e(m: Arithmetic, x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    size = m.abs(x)
    return _first_kind(m, size, on(0.0, 8.0, c.I0E_NEAR, size), c.I0E_FAR)


def modified_bessel_i1e(m: Arithmetic, x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    size = m.abs(x)
    near = on(0.0, 8.0, c.I1E_NEAR, size) * size
    value = _first_kind(m, size, near, c.I1E_FAR)
    return m.choose(x < 0.0, -1.0 * value, value)


def _grown(m: Arithmetic, x: Any, scaled: Any) -> Any:
    """``scaled`` times exp(|x|), infinite where exp overflows."""
    size = m.abs(x)
    # exp(|x|) in two factors: it overflows while its product with ``scaled`` is still finite.
    half = m.exp(size * 0.5)
    infinite = m.choose(x < 0.0, -math.inf, math.inf)
    return m.choose(m.equal(size, math.inf), infinite, scaled * half * half)


def modified_bessel_i0(m: Arithmetic, x: Any) -> Any:
    """I0(x)."""
    return _grown(m, m.abs(x), modified_bessel_i0e(m, x))


def modified_bessel_i1(m: Arithmetic, x: Any) -> Any:
    """I1(x)."""
    return _grown(m, x, modified_bessel_i1e(m, x))


def _second_kind(m: Arithmetic, x: Any, near: Any, far: tuple[float, ...], scaled: bool) -> Any:
    """A modified function of the second kind: infinite at 0, NaN below."""
    bounded = m.choose(x < 2.0, 2.0, x)
    beyond = on(0.0, 0.5, far, 1.0 / bounded) / m.sqrt(bounded)
    if not scaled:
        beyond = beyond * m.exp(-1.0 * bounded)
    else:
        near = near * m.exp(x)
    value = m.choose(x <= 2.0, near, beyond)
    return m.choose(x < 0.0, math.nan, m.choose(m.equal(x, 0.0), math.inf, value))


def modified_bessel_k0(m: Arithmetic, x: Any, *, scaled: bool = False) -> Any:
    """K0(x), times exp(x) if ``scaled``."""
    # The logarithm is explicit (DLMF 10.31.2): what remains is smooth in x**2.
    near = on(0.0, 4.0, c.K0_NEAR, x * x) - m.log(x * 0.5) * modified_bessel_i0(m, x)
    return _second_kind(m, x, near, c.K0E_FAR, scaled)


def modified_bessel_k1(m: Arithmetic, x: Any, *, scaled: bool = False) -> Any:
    """K1(x), times exp(x) if ``scaled``."""
    near = on(0.0, 4.0, c.K1_NEAR, x * x) / x + m.log(x * 0.5) * modified_bessel_i1(m, x)
    return _second_kind(m, x, near, c.K1E_FAR, scaled)


def _waves(m: Arithmetic, x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for ``x`` >= 8, by amplitude and phase (DLMF 10.17.3)."""
    ratio = 8.0 / x
    p_numbers, q_numbers = (c.P0, c.Q0) if order == 0 else (c.P1, c.Q1)
    square = ratio * ratio * 2.0 - 1.0
    p, q = polynomial(p_numbers, square), polynomial(q_numbers, square) * ratio
    sine, cosine = m.sin(x), m.cos(x)
    # Cosine and sine of x - pi / 4, times sqrt(2); the phase is pi / 2 less for order 1.
    at_cos, at_sin = cosine + sine, sine - cosine
    if order == 1:
        at_cos, at_sin = at_sin, -1.0 * at_cos
    scale = m.sqrt((1 / math.pi) / x)
    return scale * (p * at_cos - q * at_sin), scale * (p * at_sin + q * at_cos)


def _from_eight(m: Arithmetic, x: Any) -> Any:
    return m.choose(x < 8.0, 8.0, x)


def bessel_j0(m: Arithmetic, x: Any) -> Any:
    """J0(x)."""
    size = m.abs(x)
    far = _waves(m, _from_eight(m, size), 0)[0]
    value = m.choose(size <= 8.0, on(0.0, _SQUARES, c.J0_NEAR, size * size), far)
    return m.choose(m.equal(size, math.inf), 0.0, value)


def bessel_j1(m: Arithmetic, x: Any) -> Any:
    """J1(x)."""
    size = m.abs(x)
    near = on(0.0, _SQUARES, c.J1_NEAR, size * size) * size
    value = m.choose(size <= 8.0, near, _waves(m, _from_eight(m, size), 1)[0])
    value = m.choose(m.equal(size, math.inf), 0.0, value)
    return m.choose(x < 0.0, -1.0 * value, value)


def bessel_y0(m: Arithmetic, x: Any) -> Any:
    """Y0(x): minus infinity at 0, NaN below."""
    square = x * x
    first = on(0.0, _SQUARES, c.J0_NEAR, square)
    # The logarithm is explicit (DLMF 10.8.2): what remains is smooth in x**2.
    near = on(0.0, _SQUARES, c.Y0_NEAR, square) + m.log(x) * first * (2 / math.pi)
    return _irregular(m, x, m.choose(x <= 8.0, near, _waves(m, _from_eight(m, x), 0)[1]))


def bessel_y1(m: Arithmetic, x: Any) -> Any:
    """Y1(x): minus infinity at 0, NaN below."""
    square = x * x
    first = on(0.0, _SQUARES, c.J1_NEAR, square) * x
    near = (on(0.0, _SQUARES, c.Y1_NEAR, square) * x
            + (m.log(x) * first - 1.0 / x) * (2 / math.pi))
    return _irregular(m, x, m.choose(x <= 8.0, near, _waves(m, _from_eight(m, x), 1)[1]))


def _irregular(m: Arithmetic, x: Any, value: Any) -> Any:
    value = m.choose(m.equal(x, math.inf), 0.0, value)
    return m.choose(x < 0.0, math.nan, m.choose(m.equal(x, 0.0), -math.inf, value))


def airy_ai(m: Arithmetic, x: Any) -> Any:
    """Airy's function of the first kind; NaN at infinities."""
    size = m.abs(x)
    # The clamp keeps the decaying form below in the range of its polynomial.
    far = m.choose(size < 2.25, 2.25, size)
    root = m.sqrt(far)
    zeta = far * root * (2 / 3)
    quarter = m.sqrt(root)
    # The asymptotic forms in zeta = 2/3 |x|**(3/2) (DLMF 9.7): decay for positive x, waves for
    # negative.
    decays = (on(0.0, 0.4444444444444444, c.AIRY_DECAY, 1.0 / zeta) * m.exp(-1.0 * zeta)
              / (quarter * (2 * math.sqrt(math.pi))))
    square = 1.0 / (zeta * zeta)
    f, g = on(0.0, 0.025, c.AIRY_F, square), on(0.0, 0.025, c.AIRY_G, square) / zeta
    sine, cosine = m.sin(zeta), m.cos(zeta)
    waves = ((f - g) * cosine + (f + g) * sine) / (quarter * math.sqrt(2 * math.pi))
    middle = m.choose(x < -1.125, on(-4.5, -1.125, c.AIRY_LEFT, x),
                      on(-1.125, 2.25, c.AIRY_MIDDLE, x))
    value = m.choose(x > 2.25, decays, m.choose(x < -4.5, waves, middle))
    return m.choose(m.equal(size, math.inf), math.nan, value)


def airy_ai_prime(m: Arithmetic, x: Any) -> Any:
    """The derivative of ``airy_ai``, by the derivatives of its formulas; NaN at infinities."""
    size = m.abs(x)
    far = m.choose(size < 2.25, 2.25, size)
    root = m.sqrt(far)  # the derivative of zeta
    zeta = far * root * (2 / 3)
    quarter = m.sqrt(root)
    inverse = 1.0 / zeta
    factor = on(0.0, 0.4444444444444444, c.AIRY_DECAY, inverse)
    change = slope_on(0.0, 0.4444444444444444, c.AIRY_DECAY, inverse) * (-1.0 * inverse * inverse)
    decays = (((change - factor) * root - factor / (far * 4.0)) * m.exp(-1.0 * zeta)
              / (quarter * (2 * math.sqrt(math.pi))))
    square = inverse * inverse
    moved = square * inverse * root * -2.0  # the derivative of square
    f, g = on(0.0, 0.025, c.AIRY_F, square), on(0.0, 0.025, c.AIRY_G, square) * inverse
    df = slope_on(0.0, 0.025, c.AIRY_F, square) * moved
    dg = slope_on(0.0, 0.025, c.AIRY_G, square) * moved * inverse - g * root * inverse
    sine, cosine = m.sin(zeta), m.cos(zeta)
    wave = (f - g) * cosine + (f + g) * sine
    turn = (df - dg) * cosine + (df + dg) * sine + root * ((f + g) * cosine - (f - g) * sine)
    waves = (wave / (far * 4.0) - turn) / (quarter * math.sqrt(2 * math.pi))
    middle = m.choose(x < -1.125, slope_on(-4.5, -1.125, c.AIRY_LEFT, x),
                      slope_on(-1.125, 2.25, c.AIRY_MIDDLE, x))
    value = m.choose(x > 2.25, decays, m.choose(x < -4.5, waves, middle))
    return m.choose(m.equal(size, math.inf), math.nan, value)
