"""Fit the polynomials of ``weft/tir/decomp`` and print ``coefficients.py``.

Each function is interpolated in Chebyshev nodes with 60 digits, which is within a small factor
of the best polynomial of that degree; the degree has the factor to spare. Run with mpmath
installed: ``python tools/fit_polynomials.py > weft/tir/decomp/coefficients.py``.
"""

from __future__ import annotations

from collections.abc import Callable

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
    ("EXP_32", "(exp(r) - 1 - r) / r**2 on |r| <= ln(2)/2", EXP, -HALF_LN2, HALF_LN2, 4),
    ("EXP_64", "the same", EXP, -HALF_LN2, HALF_LN2, 10),
    ("LOG_32", "(log(1+f) - f + f**2/2) / f**3 on |f| <= 1/3", LOG, -0.3334, 0.3334, 9),
    ("ATANH_64", "2*(atanh(s)/s - 1) / s**2 in s**2, s <= 0.2", ATANH, 0, 0.0401, 9),
    ("ATANH_TAIL", "2*(atanh(s)/s - 1 - s**2/3 - s**4/5) / s**6 in s**2", ATANH_TAIL, 0, 0.0401, 9),
    ("TANH_32", "(tanh(x)/x - 1) / x**2 in x**2, x <= 1", TANH, 0, 1.0, 7),
    ("TANH_64", "the same", TANH, 0, 1.0, 16),
    ("ERF_32", "erf(x)/x - 1 in x**2, x <= 1", ERF, 0, 1.0, 7),
    ("ERF_64", "the same", ERF, 0, 1.0, 15),
    ("LOG_ERFC_32", "-log(erfc(t + 2.5)) on |t| <= 1.5", log_erfc(2.5), -1.5, 1.5, 9),
    ("LOG_ERFC_64", "-log(erfc(t + 3.5)) on |t| <= 2.5", log_erfc(3.5), -2.5, 2.5, 28),
    ("SIN_32", "(sin(r)/r - 1) / r**2 in r**2, r <= pi/4", SIN, 0, EIGHTH_TURN**2, 3),
    ("SIN_64", "the same", SIN, 0, EIGHTH_TURN**2, 6),
    ("COS_32", "(cos(r) - 1 + r**2/2) / r**4 in r**2, r <= pi/4", COS, 0, EIGHTH_TURN**2, 3),
    ("COS_64", "the same", COS, 0, EIGHTH_TURN**2, 6),
)


def main() -> None:
    print('"""Polynomials of the elementary functions, constant term first.\n')
    print("Written by ``tools/fit_polynomials.py``: Chebyshev interpolation with 60 digits.")
    print('"""\n')
    for name, doc, f, low, high, degree in TABLE:
        print(f"# {doc}")
        print(f"{name} = (")
        for c in fit(f, low, high, degree):
            print(f"    {float(c)!r},")
        print(")")


if __name__ == "__main__":
    main()
