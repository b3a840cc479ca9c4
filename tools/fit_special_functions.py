"""Polynomials of special functions, fitted with mpmath: ``python tools/fit_special_functions.py``.

Writes ``weft/topi/special/coefficients.py``. Each function is brought into a form that is smooth
on an interval, interpolated there at Chebyshev nodes with 50 digits, cut where the Chebyshev
coefficients fall below 2**-58 of the largest, and written as a polynomial in t from -1 to 1,
highest power first, rounded to float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.dps = 50
NODES = 72
SMALLEST = mpf(2) ** -58
TARGET = Path(__file__).parent.parent / "weft/topi/special/coefficients.py"
HEADER = '''"""Polynomials that approximate special functions.

Written by tools/fit_special_functions.py. Each is in t from -1 to 1, highest power
first; the function that reads it says what t is.
"""

from __future__ import annotations

'''
Smooth = Callable[[Any], Any]


def chebyshev(function: Smooth) -> list[Any]:
    """The Chebyshev coefficients of a function of t, cut where they no longer matter."""
    nodes = [mp.cos(mp.pi * (k + mpf(1) / 2) / NODES) for k in range(NODES)]
    values = [function(t) for t in nodes]
    found = []
    for n in range(NODES):
        total = mp.fsum(v * mp.cos(n * mp.pi * (k + mpf(1) / 2) / NODES)
                        for k, v in enumerate(values))
        found.append(total * (1 if n == 0 else 2) / NODES)
    largest = max(map(abs, found))
    while len(found) > 1 and abs(found[-1]) < SMALLEST * largest:
        found.pop()
    if len(found) > NODES - 8:
        raise SystemExit(f"{NODES} nodes are too few")
    return found


def polynomial(series: list[Any]) -> list[float]:
    """A Chebyshev series as powers of t, highest first."""
    total = [mpf(0)] * len(series)
    before, now = [mpf(1)], [mpf(0), mpf(1)]
    for n, c in enumerate(series):
        terms = before if n == 0 else now
        if n > 1:
            after = [mpf(0)] + [2 * v for v in now]
            for i, v in enumerate(before):
                after[i] -= v
            before, now = now, after
            terms = now
        for i, v in enumerate(terms):
            total[i] += c * v
    return [float(v) for v in reversed(total)]


def between(low: float, high: float, function: Smooth) -> Smooth:
    """``function`` of u, as one of t, where u goes from ``low`` to ``high``."""
    middle, half = (mpf(low) + mpf(high)) / 2, (mpf(high) - mpf(low)) / 2
    return lambda t: function(middle + half * t)


def inverse_of(smooth: Smooth, limit: Any) -> Smooth:
    """``smooth(1 / u)`` as a function of u, ``limit`` at (and next to) zero."""
    return lambda u: limit if abs(u) < mpf(10) ** -25 else smooth(1 / u)


def erfcx_in_ratio(t: Any) -> Any:
    """(1 + 2x) erfcx(x) at t = (x - 3.75) / (x + 3.75) (Shepherd and Laframboise, 1981)."""
    if 1 - t < mpf(10) ** -25:
        return 2 / mp.sqrt(mp.pi)
    x = mpf("3.75") * (1 + t) / (1 - t)
    if x > 40:
        series = mp.hyp2f0(1, mpf(1) / 2, -1 / x**2)
        return (1 + 2 * x) * series / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def erfc_inverse(w: Any) -> Any:
    """The y with erfc(y) = exp(-w**2), by Newton's method on the logarithm."""
    y = mpf(w) if w < 2 else w - mp.log(w * mp.sqrt(mp.pi)) / (2 * w)
    for _ in range(60):
        value = mp.erfc(y)
        step = (mp.log(value) + w * w) * value * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mpf(10) ** -42 * abs(y):
            break
    return y


def oscillation(order: int, part: str) -> Smooth:
    """Of J and Y at x = 8 / sqrt(u): P, or Q x / 8, of the phase amplitude form (DLMF 10.17)."""

    def smooth(u: Any) -> Any:
        if u < mpf(10) ** -25:
            return mpf(1) if part == "P" else mpf(4 * order * order - 1) / 64
        x = 8 / mp.sqrt(u)
        angle = x - mp.pi * (2 * order + 1) / 4
        j, y, scale = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        if part == "P":
            return scale * (j * mp.cos(angle) + y * mp.sin(angle))
        return scale * (y * mp.cos(angle) - j * mp.sin(angle)) * x / 8

    return smooth


def airy_oscillation(part: str) -> Smooth:
    """Of Ai(-z), f, or g zeta, of u = 1 / zeta**2 with zeta = 2/3 z**1.5 (DLMF 9.7.9)."""

    def smooth(u: Any) -> Any:
        if u < mpf(10) ** -25:
            return mpf(1) if part == "f" else mpf(5) / 72
        zeta = 1 / mp.sqrt(u)
        z = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
        angle, scale = zeta - mp.pi / 4, mp.sqrt(mp.pi) * z ** (mpf(1) / 4)
        a, b = mp.airyai(-z) * scale, mp.airybi(-z) * scale
        if part == "f":
            return mp.cos(angle) * a - mp.sin(angle) * b
        return (mp.sin(angle) * a + mp.cos(angle) * b) * zeta

    return smooth


def airy_decay(u: Any) -> Any:
    """Ai(x) exp(zeta) 2 sqrt(pi) x**(1/4) of u = 1 / zeta."""
    if u < mpf(10) ** -25:
        return mpf(1)
    x = (mpf(3) / 2 / u) ** (mpf(2) / 3)
    return mp.airyai(x) * mp.exp(1 / u) * 2 * mp.sqrt(mp.pi) * x ** (mpf(1) / 4)


def without_zeros(x: Any) -> Any:
    """lgamma(x) / ((x - 1)(x - 2))."""
    if abs(x - 1) < mpf(10) ** -20:
        return mp.euler
    if abs(x - 2) < mpf(10) ** -20:
        return 1 - mp.euler
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def modified_k(order: int) -> Smooth:
    """Of u = x**2: K0 + log(x / 2) I0, or x (K1 - log(x / 2) I1)."""

    def smooth(u: Any) -> Any:
        x = mp.sqrt(u) if u > mpf(10) ** -40 else mpf(10) ** -20
        rest = mp.besselk(order, x) - (-1) ** order * -mp.log(x / 2) * mp.besseli(order, x)
        return rest if order == 0 else rest * x

    return smooth


def second_kind(order: int) -> Smooth:
    """Of u = x**2: Y0 - 2/pi log(x) J0, or (Y1 - 2/pi (log(x) J1 - 1 / x)) / x."""

    def smooth(u: Any) -> Any:
        x = mp.sqrt(u) if u > mpf(10) ** -24 else mpf(10) ** -12
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    return smooth


def _scaled_i(order: int, x: Any) -> Any:
    return mp.besseli(order, x) * mp.exp(-x)


def _ratio(function: Smooth, limit: Any) -> Smooth:
    """``function(x) / x``, ``limit`` at zero."""
    return lambda x: limit if abs(x) < mpf(10) ** -20 else function(x) / x


def _root_of_square(function: Smooth) -> Smooth:
    """An even function as one of u = x**2."""
    return lambda u: function(mp.sqrt(u) if u > mpf(10) ** -40 else mpf(10) ** -20)


SQRT_PI_HALF = mp.sqrt(mp.pi / 2)
TWO_PI_ROOT = 1 / mp.sqrt(2 * mp.pi)
FUNCTIONS: dict[str, Smooth] = {
    "ERFCX": erfcx_in_ratio,
    "ERFINV_MIDDLE": between(0, 0.5625, _root_of_square(_ratio(mp.erfinv, mp.sqrt(mp.pi) / 2))),
    "ERFCINV_NEAR": between(1.125, 3.25, erfc_inverse),
    "ERFCINV_MIDDLE": between(3.25, 8, erfc_inverse),
    "ERFCINV_FAR": between(1 / mpf(28), 1 / mpf(8), lambda u: erfc_inverse(1 / u) * u),
    "LGAMMA": between(0.7, 2.3, without_zeros),
    "I0E_NEAR": between(0, 8, lambda x: _scaled_i(0, x)),
    "I0E_FAR": between(0, 1 / mpf(8), inverse_of(lambda x: _scaled_i(0, x) * mp.sqrt(x),
                                                 TWO_PI_ROOT)),
    "I1E_NEAR": between(0, 8, _ratio(lambda x: _scaled_i(1, x), mpf(1) / 2)),
    "I1E_FAR": between(0, 1 / mpf(8), inverse_of(lambda x: _scaled_i(1, x) * mp.sqrt(x),
                                                 TWO_PI_ROOT)),
    "K0_NEAR": between(0, 4, modified_k(0)),
    "K0E_FAR": between(0, 0.5, inverse_of(
        lambda x: mp.besselk(0, x) * mp.exp(x) * mp.sqrt(x), SQRT_PI_HALF)),
    "K1_NEAR": between(0, 4, modified_k(1)),
    "K1E_FAR": between(0, 0.5, inverse_of(
        lambda x: mp.besselk(1, x) * mp.exp(x) * mp.sqrt(x), SQRT_PI_HALF)),
    "J0_NEAR": between(0, 64, _root_of_square(lambda x: mp.besselj(0, x))),
    "J1_NEAR": between(0, 64, _root_of_square(_ratio(lambda x: mp.besselj(1, x), mpf(1) / 2))),
    "Y0_NEAR": between(0, 64, second_kind(0)),
    "Y1_NEAR": between(0, 64, second_kind(1)),
    "P0": between(0, 1, oscillation(0, "P")),
    "Q0": between(0, 1, oscillation(0, "Q")),
    "P1": between(0, 1, oscillation(1, "P")),
    "Q1": between(0, 1, oscillation(1, "Q")),
    "AIRY_LEFT": between(-4.5, -1.125, mp.airyai),
    "AIRY_MIDDLE": between(-1.125, 2.25, mp.airyai),
    "AIRY_DECAY": between(0, 0.4444444444444444, airy_decay),
    "AIRY_F": between(0, 1 / mpf(40), airy_oscillation("f")),
    "AIRY_G": between(0, 1 / mpf(40), airy_oscillation("g")),
}


def _written(name: str, numbers: list[float]) -> str:
    lines = [f"{name} = ("]
    row = "   "
    for number in numbers:
        text = f" {number!r},"
        if len(row) + len(text) > 99:
            lines.append(row)
            row = "   "
        row += text
    return "\n".join([*lines, row, ")"])


def main() -> None:
    parts = []
    for name, smooth in FUNCTIONS.items():
        numbers = polynomial(chebyshev(smooth))
        condition = sum(map(abs, numbers)) / max(abs(smooth(mpf(0))), mpf(10) ** -9)
        print(f"{name}: {len(numbers)} coefficients, sum / middle {float(condition):.3g}",
              flush=True)
        parts.append(_written(name, numbers))
    TARGET.write_text(HEADER + "\n".join(parts) + "\n")
    print(f"{TARGET}, mpmath {mpmath.__version__}")


if __name__ == "__main__":
    main()
