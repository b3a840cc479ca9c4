"""Special functions against other formulas for them, in float64 and over all of their ranges.

That the compiled operators compute what these formulas say is tested from their cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.topi.special import bessel, gamma
from weft.topi.special.arithmetic import ARRAYS
from weft.topi.special.recurrences import (
    POLYNOMIALS,
    Recurrence,
    evaluate_polynomials,
    integrate_gamma,
)

_RANDOM = np.random.default_rng(0)


def _draws(*ranges: tuple[float, float]) -> np.ndarray:
    return np.concatenate([_RANDOM.uniform(low, high, 200) for low, high in ranges])


def _close(function: Callable[..., Any], x: np.ndarray, expected: np.ndarray, rtol: float = 1e-12,
           atol: float = 0.0) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(function(ARRAYS, x), expected, rtol=rtol, atol=atol)


def _by_math(function: Callable[[float], float], x: np.ndarray) -> np.ndarray:
    return np.array([function(v) for v in x])


def test_erfc_and_its_scaled_form():
    x = _draws((-6, 0), (0, 6), (6, 25))
    expected = _by_math(math.erfc, x)
    _close(gamma.erfc, x, expected, 1e-12)
    near = x[np.abs(x) < 20]
    _close(gamma.erfcx, near, _by_math(math.erfc, near) * np.exp(near * near), 1e-11)


def test_inverse_error_functions():
    x = np.concatenate([_draws((-1, 1)), 1 - 10.0 ** _draws((-14, -1))])
    with np.errstate(all="ignore"):
        back = gamma.erfinv(ARRAYS, x)
        p = np.concatenate([_draws((0, 1)), 10.0 ** _draws((-300, -1))])
        quantile = gamma.ndtri(ARRAYS, p)
    small = np.abs(x) < 0.9
    np.testing.assert_allclose(_by_math(math.erf, back[small]), x[small], rtol=1e-14)
    # erfc is steep where erf is flat: an error of the inverse is as large as 2 y**2 of erfc's.
    tail = x > 0.9
    np.testing.assert_allclose(_by_math(math.erfc, back[tail]), 1 - x[tail], rtol=1e-12)
    np.testing.assert_allclose(_by_math(lambda y: math.erfc(-y / math.sqrt(2)) / 2, quantile), p,
                               rtol=1e-11)


def test_lgamma():
    x = _draws((0, 3), (3, 20), (20, 1e6), (-9, 0))
    _close(gamma.lgamma, x, _by_math(math.lgamma, x), 1e-12, 1e-13)
    for zero in (1, 2):  # DLMF 5.7.3: the series at 1; that at 2 has one more log(1 + step)
        x = zero + 10.0 ** _draws((-12, -4))
        step = x - zero
        series = -step * (0.5772156649015329 - step * (math.pi**2 / 12
                                                       - step * 0.40068563438653143))
        _close(gamma.lgamma, x, series + (zero - 1) * np.log1p(step), 1e-11)


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_polygamma_steps_and_reflects(order):
    """psi(x + 1) - psi(x) = (-1)**n n! x**-(n + 1), and sums of thirds (DLMF 5.15.5, 5.15.7)."""
    x = _draws((0.05, 30), (-8, 0))
    with np.errstate(all="ignore"):
        here, further = (gamma.polygamma(ARRAYS, order, v) for v in (x, x + 1))
        thirds = sum(gamma.polygamma(ARRAYS, order, x + k / 3) for k in range(3))
        whole = gamma.polygamma(ARRAYS, order, 3 * x) - (math.log(3) if order == 0 else 0)
    step = (-1) ** order * math.factorial(order) * x ** -(order + 1.0)
    scale = np.abs(here) + np.abs(step)
    np.testing.assert_allclose((further - here) / scale, step / scale, atol=1e-9)
    size = sum(np.abs(gamma.polygamma(ARRAYS, order, x + k / 3)) for k in range(3))
    np.testing.assert_allclose(thirds / 3 ** (order + 1) / size, whole / size, atol=1e-9)


def test_zeta():
    terms = np.arange(1, 200001, dtype=np.float64)
    for s in (2.5, 3.0, 7.0):
        end = terms[-1]
        rest = end ** (1 - s) / (s - 1) - 0.5 * end**-s
        total = np.sum(terms[::-1] ** -s) + rest
        np.testing.assert_allclose(gamma.zeta(ARRAYS, np.array([s]), np.array([1.0])), total,
                                   rtol=1e-12)


def _integral(integrand: Callable[[np.ndarray], np.ndarray], end: float, count: int) -> np.ndarray:
    """By trapezoids, which converge faster than any power for what is periodic or decays."""
    t = np.linspace(0, end, count + 1)
    values = integrand(t)
    return (values.sum(axis=-1) - (values[..., 0] + values[..., -1]) / 2) * (end / count)


@pytest.mark.parametrize("order", [0, 1])
def test_modified_bessel_functions(order):
    """DLMF 10.32.3 and 10.32.9."""
    x = _draws((0.01, 8), (8, 60))
    first = (bessel.modified_bessel_i0e, bessel.modified_bessel_i1e)[order]
    second = (bessel.modified_bessel_k0, bessel.modified_bessel_k1)[order]
    i = _integral(lambda t: np.exp(x[:, None] * (np.cos(t) - 1)) * np.cos(order * t), np.pi,
                  300) / np.pi
    _close(first, x, i, 1e-12)
    k = _integral(lambda t: np.exp(-x[:, None] * (np.cosh(t) - 1)) * np.cosh(order * t), 12, 3000)
    _close(lambda m, v: second(m, v, scaled=True), x, k, 1e-12)
    grown = (bessel.modified_bessel_i0, bessel.modified_bessel_i1)[order]
    _close(grown, x, i * np.exp(x), 1e-12)
    _close(second, x, k * np.exp(-x), 1e-12)


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions(order):
    """J by DLMF 10.9.2; Y by the Wronskian (10.5.2) of both."""
    x = _draws((0.01, 8), (8, 60))
    j = _integral(lambda t: np.cos(x[:, None] * np.sin(t) - order * t), np.pi, 300) / np.pi
    _close((bessel.bessel_j0, bessel.bessel_j1)[order], x, j, 1e-12, 1e-13)
    j0, j1, y0, y1 = (f(ARRAYS, x) for f in (bessel.bessel_j0, bessel.bessel_j1, bessel.bessel_y0,
                                             bessel.bessel_y1))
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (np.pi * x), rtol=1e-10)


def test_airy_function():
    """Ai'' = x Ai, by fourth-order differences, and its value at zero (DLMF 9.2.3)."""
    x = _draws((-12, -4.6), (-4.4, -1.2), (-1.1, 2.2), (2.3, 9))
    step = 1e-2
    values = [bessel.airy_ai(ARRAYS, x + k * step) for k in (-2, -1, 0, 1, 2)]
    second = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / (
        12 * step**2)
    np.testing.assert_allclose(second, x * values[2], rtol=1e-4, atol=3e-6)
    at_zero = 3 ** (-2 / 3) / math.gamma(2 / 3)
    np.testing.assert_allclose(bessel.airy_ai(ARRAYS, np.zeros(1)), at_zero, rtol=1e-14)
    # The pieces meet.
    for border in (-4.5, -1.125, 2.25):
        ends = bessel.airy_ai(ARRAYS, border + np.array([-1e-9, 1e-9]))
        np.testing.assert_allclose(ends[0], ends[1], atol=4e-9)


def _polynomial(kind: str, x: np.ndarray, n: np.ndarray) -> np.ndarray:
    r: Recurrence = POLYNOMIALS[kind]
    out = np.zeros(x.shape)
    evaluate_polynomials(x, n, out, 100, r.slope, r.start, r.growth, r.factor, r.shift, r.decay,
                         r.rest, r.grown)
    return out


def test_orthogonal_polynomials():
    angle = _draws((0.1, 3.0))
    n = np.arange(angle.size) % 12
    x = np.cos(angle)
    expected = {
        "chebyshev_t": np.cos(n * angle),
        "chebyshev_u": np.sin((n + 1) * angle) / np.sin(angle),
        "chebyshev_v": np.cos((n + 0.5) * angle) / np.cos(angle / 2),
        "chebyshev_w": np.sin((n + 0.5) * angle) / np.sin(angle / 2),
        "hermite_h": _series(np.polynomial.hermite.hermval, x, n),
        "hermite_he": _series(np.polynomial.hermite_e.hermeval, x, n),
        "laguerre_l": _series(np.polynomial.laguerre.lagval, x, n),
        "legendre_p": _series(np.polynomial.legendre.legval, x, n),
    }
    for kind, values in expected.items():
        np.testing.assert_allclose(_polynomial(kind, x, n), values, rtol=1e-9, atol=1e-9,
                                   err_msg=kind)


def _series(value_of: Callable[..., Any], x: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.array([value_of(v, np.eye(13)[d]) for v, d in zip(x, n, strict=True)])


def test_incomplete_gamma():
    """P(a + 1, x) = P(a, x) - x**a e**-x / gamma(a + 1), P(1, x) = 1 - e**-x (DLMF 8.8.5)."""
    a, x = _draws((0.05, 30)), _draws((0.05, 40))
    lower, next_lower, upper, first = (np.zeros(a.size) for _ in range(4))
    integrate_gamma(a, x, lower, False)
    integrate_gamma(a, x, upper, True)
    integrate_gamma(a + 1, x, next_lower, False)
    integrate_gamma(np.ones(a.size), x, first, False)
    step = np.exp(a * np.log(x) - x - _by_math(math.lgamma, a + 1))
    np.testing.assert_allclose(lower - next_lower, step, atol=1e-12)
    np.testing.assert_allclose(lower + upper, 1, rtol=1e-14)
    np.testing.assert_allclose(first, 1 - np.exp(-x), rtol=1e-12)


def test_ends_and_poles():
    inf, nan = math.inf, math.nan
    rows: tuple[tuple[Callable[..., Any], list[float], list[float]], ...] = (
        (gamma.erfinv, [1, -1, 1.5, nan], [inf, -inf, nan, nan]),
        (gamma.ndtri, [0, 1, -0.5, 0.5], [-inf, inf, nan, 0]),
        (gamma.erfcx, [inf, -inf, 0, nan], [0, inf, 1, nan]),
        (gamma.lgamma, [0, -3, inf, -inf, nan, 1], [inf, inf, inf, inf, nan, 0]),
        (gamma.digamma, [0.0, -0.0, -3, inf], [-inf, inf, nan, inf]),
        (bessel.modified_bessel_i0, [inf, -inf, 0], [inf, inf, 1]),
        (bessel.modified_bessel_i1, [inf, -inf, 0], [inf, -inf, 0]),
        (bessel.modified_bessel_k0, [0, -1, inf], [inf, nan, 0]),
        (bessel.bessel_j0, [inf, 0, nan], [0, 1, nan]),
        (bessel.bessel_y1, [0, -1, nan], [-inf, nan, nan]),
    )
    for function, x, expected in rows:
        _close(function, np.array(x, np.float64), np.array(expected), 1e-12, 1e-12)


@pytest.mark.parametrize("derivative", [0, 1])
def test_a_huge_degree_ends(derivative):
    """2^62 steps would take centuries."""
    x = np.array([0.5, 0.5, 0.5], np.float64)
    n = np.array([1 << 62, 3, (1 << 20) + 1])
    f = weft.parse(f"""
        def @main(%x: Tensor[(3,), float64], %n: Tensor[(3,), int64]) {{
          special.orthogonal_polynomial(%x, %n, kind="legendre_p", derivative={derivative})
        }}""")
    got = weft.compile(f)(x, n)
    assert np.isnan(got).tolist() == [True, False, True]
