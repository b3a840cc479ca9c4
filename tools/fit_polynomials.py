"""Fit the polynomials of ``weft/tir/decomp`` and print its modules of constants.

Each function is interpolated in Chebyshev nodes with 60 digits, which is within a small factor
of the best polynomial of that degree; the degree has the factor to spare. Run with mpmath
installed: ``python tools/fit_polynomials.py > weft/tir/decomp/coefficients.py``, and with
``tables`` as argument ``> weft/tir/decomp/tables.py``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable

import numpy as np
from mpmath import mp, mpf

mp.dps = 60

Function = Callable[[mpf], mpf]


def fit(f: Function, low: float, high: float, degree: int) -> list[mpf]:
    """Coefficients, constant first, of the interpolation of ``f`` in Chebyshev nodes."""
    n = degree + 1
    middle, half = (mpf(low) + mpf(high)) / 2, (mpf(high) - mpf(low)) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    rows = mp.matrix([[x**j for j in range(n)] for x in nodes])
    return list(mp.lu_solve(rows, mp.matrix([f(x) for x in nodes])))


def _series(f: Function, near_zero: Function) -> Function:
    """``f``, replaced where it is 0/0 in finite precision."""
    return lambda x: near_zero(x) if abs(x) < mpf(10) ** -7 else f(x)


def _root(f: Function) -> Function:
    """As a function of the square of its argument."""
    return lambda z: f(mp.sqrt(abs(z)))


EXP = _series(lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: mpf(1) / 2 + r / 6)
LOG = _series(lambda f: (mp.log(1 + f) - f + f**2 / 2) / f**3, lambda f: mpf(1) / 3 - f / 4)
ATANH_TAIL = _root(
    _series(lambda s: 2 * (mp.atanh(s) / s - 1 - s**2 / 3 - s**4 / 5) / s**6, lambda _: mpf(2) / 7)
)
ATANH = _root(_series(lambda s: 2 * (mp.atanh(s) / s - 1) / s**2, lambda _: mpf(2) / 3))
TANH = _root(_series(lambda x: (mp.tanh(x) / x - 1) / x**2, lambda _: -mpf(1) / 3))
ERF = _root(_series(lambda x: mp.erf(x) / x - 1, lambda _: 2 / mp.sqrt(mp.pi) - 1))
SIN = _root(_series(lambda r: (mp.sin(r) / r - 1) / r**2, lambda _: -mpf(1) / 6))
COS = _root(_series(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4, lambda _: mpf(1) / 24))
HALF_LN2 = 0.3467
EIGHTH_TURN = 0.7855


def log_erfc(middle: float) -> Function:
    """``-log(erfc(a))`` as a function of ``a - middle``."""
    return lambda t: -mp.log(mp.erfc(t + middle))


TABLE: tuple[tuple[str, str, Function, float, float, int], ...] = (
    ("EXP_32", "(exp(r) - 1 - r) / r**2 on |r| <= ln(2)/32", EXP, -0.0217, 0.0217, 1),
    ("EXP_64", "(exp(r) - 1 - r) / r**2 on |r| <= ln(2)/2", EXP, -HALF_LN2, HALF_LN2, 10),
    ("LOG_32", "(log(1+f) - f + f**2/2) / f**3 on |f| <= 1/3", LOG, -0.3334, 0.3334, 9),
    ("ATANH_64", "2*(atanh(s)/s - 1) / s**2 in s**2, s <= 0.2", ATANH, 0, 0.0401, 9),
    ("ATANH_TAIL", "2*(atanh(s)/s - 1 - s**2/3 - s**4/5) / s**6 in s**2", ATANH_TAIL, 0, 0.0401, 9),
    ("TANH_64", "(tanh(x)/x - 1) / x**2 in x**2, x <= 1", TANH, 0, 1.0, 16),
    ("ERF_64", "erf(x)/x - 1 in x**2, x <= 1", ERF, 0, 1.0, 15),
    ("LOG_ERFC_64", "-log(erfc(t + 3.5)) on |t| <= 2.5", log_erfc(3.5), -2.5, 2.5, 28),
    ("SIN_32", "(sin(r)/r - 1) / r**2 in r**2, r <= pi/4", SIN, 0, EIGHTH_TURN**2, 3),
    ("SIN_64", "the same", SIN, 0, EIGHTH_TURN**2, 6),
    ("COS_32", "(cos(r) - 1 + r**2/2) / r**4 in r**2, r <= pi/4", COS, 0, EIGHTH_TURN**2, 3),
    ("COS_64", "the same", COS, 0, EIGHTH_TURN**2, 6),
)


# Name, doc, function, end of the last interval, of the functions that ``decomp/piecewise.py``
# evaluates.
PIECEWISE: tuple[tuple[str, str, Function, float], ...] = (
    ("TANH", "tanh; it rounds to 1 past the end", mp.tanh, 9.1),
    ("ERF", "the error function; it rounds to 1 past the end", mp.erf, 4.0),
)
ENTRIES, DEGREE = 16, 6
FIRST_EXPONENT = -4
EXP_STEPS = 16
TURN_STEP, TURN_STEPS = 8, 13


def shifted(polynomial: list[mpf], by: mpf) -> list[mpf]:
    """The coefficients of ``p(t + by)``."""
    result = [mpf(0)] * len(polynomial)
    for power, c in enumerate(polynomial):
        for k in range(power + 1):
            result[k] += c * mp.binomial(power, k) * by ** (power - k)
    return result


def around_exact_value(polynomial: list[mpf], middle: float) -> tuple[float, list[mpf]]:
    """A float32 near ``middle`` where the polynomial nearly is a float32 too, and the polynomial
    about that point: its constant term is rounded almost without error.
    """

    def error(point: np.float32) -> mpf:
        value = mp.polyval(polynomial[::-1], mpf(float(point)) - mpf(middle))
        return abs(value - mpf(float(np.float32(float(value))))) / value

    points = [np.float32(middle)]
    for _ in range(400):
        points.append(np.nextafter(points[-1], np.float32(np.inf)))
    best = float(min(points, key=error))
    return best, shifted(polynomial, mpf(best) - mpf(middle))


def first_interval(f: Function, end: float) -> tuple[float, list[mpf]]:
    """``f(x) - x`` about 0 for an odd ``f``: relative errors count there."""
    slope = mp.diff(f, 0)
    rest = fit(lambda x: (f(x) - slope * x) / x**2, 0, end, DEGREE - 2)
    return 0.0, [mpf(0), slope - 1, *rest]


def intervals(f: Function, end: float) -> list[tuple[float, list[mpf]]]:
    """Centre and polynomial about it of each interval: one up to ``2**FIRST_EXPONENT``, then two an
    octave; those beyond the ``end`` repeat the last.
    """
    found = [first_interval(f, 2.0**FIRST_EXPONENT)]
    for i in range(ENTRIES - 1):
        octave, half = divmod(i, 2)
        low = 2.0 ** (FIRST_EXPONENT + octave) * (1 + half / 2)
        high = min(2.0 ** (FIRST_EXPONENT + octave) * (1.5 + half / 2), end)
        if low >= high:
            found.append(found[-1])
            continue
        # So that the constant term is larger than any distance from the centre.
        middle = float(np.float32(max((low + high) / 2, high - 0.98 * float(f(low)))))
        about = fit(lambda t, c=middle: f(mpf(c) + t), low - middle, high - middle, DEGREE)
        found.append(around_exact_value(about, middle))
    return found


def filled(head: str, values: list[mpf] | list[float], end: str) -> str:
    """The numbers after ``head``, on lines of up to 100 characters."""
    numbers = ", ".join(repr(float(v)) for v in values) + end
    return head + textwrap.fill(numbers, 100 - len(head)).replace("\n", "\n" + " " * len(head))


def print_row(name: str, doc: str, values: list[mpf] | list[float]) -> None:
    print(f"# {doc}")
    print(filled(f"{name} = (", values, ")"))


def print_coefficients() -> None:
    print('"""Polynomials of the elementary functions, constant term first.\n')
    print("Written by ``tools/fit_polynomials.py``: Chebyshev interpolation with 60 digits.")
    print('"""\n')
    for name, doc, f, low, high, degree in TABLE:
        print_row(name, doc, fit(f, low, high, degree))


def print_tables() -> None:
    print('"""Constants that are looked up by interval, of the float32 functions.\n')
    print("Written by ``tools/fit_polynomials.py``: Chebyshev interpolation with 60 digits.")
    print('"""\n')
    powers = [mp.mpf(2) ** (mpf(j) / EXP_STEPS) for j in range(EXP_STEPS)]
    print_row("EXP_POWERS", "2**(j/16)", powers)
    mp.dps = 100
    turns = [mp.fmod(mpf(2) ** (TURN_STEP * k) * 2 / mp.pi, 4) for k in range(TURN_STEPS)]
    print_row("QUARTER_TURNS", "2**(8k) radians in quarter turns, modulo 4", turns)
    print_row("QUARTER_TURNS_REST", "the rounding errors of the entries above",
              [t - float(t) for t in turns])
    for name, doc, f, end in PIECEWISE:
        found = intervals(f, end)
        print(f"# {doc}")
        print(f"{name}_END = {end!r}")
        print_row(f"{name}_CENTRES", "the centres of its intervals", [c for c, _ in found])
        print("# of each power of the distance from the centre, its coefficients by interval")
        print(f"{name}_COEFFICIENTS = (")
        for k in range(DEGREE + 1):
            print(filled("    (", [polynomial[k] for _, polynomial in found], "),"))
        print(")")


if __name__ == "__main__":
    print_tables() if sys.argv[1:] == ["tables"] else print_coefficients()
