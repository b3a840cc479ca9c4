"""Recurrences whose number of steps depends on data, as Python compiled into the kernel."""

from __future__ import annotations

import math
from dataclasses import astuple

from weft import te
from weft.ir.dtype import float64
from weft.support.dataclass import dataclass
from weft.topi.upcast import converted


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Polynomials p(0) = 1, p(1) = slope x + start and, for k from 1 on (DLMF 18.9),

    ((growth k + factor) x + shift (2k + 1)) p(k) - (decay k + rest) p(k - 1) = (grown k + 1)
    p(k + 1).
    """

    slope: float
    start: float
    growth: float
    factor: float
    shift: float
    decay: float
    rest: float
    grown: float


def _chebyshev(slope: float, start: float) -> Recurrence:
    return Recurrence(slope, start, growth=0, factor=2, shift=0, decay=0, rest=1, grown=0)


POLYNOMIALS = {
    "chebyshev_t": _chebyshev(1, 0),
    "chebyshev_u": _chebyshev(2, 0),
    "chebyshev_v": _chebyshev(2, -1),
    "chebyshev_w": _chebyshev(2, 1),
    "hermite_h": Recurrence(2, 0, growth=0, factor=2, shift=0, decay=2, rest=0, grown=0),
    "hermite_he": Recurrence(1, 0, growth=0, factor=1, shift=0, decay=1, rest=0, grown=0),
    "laguerre_l": Recurrence(-1, 1, growth=0, factor=-1, shift=1, decay=1, rest=0, grown=1),
    "legendre_p": Recurrence(1, 0, growth=2, factor=1, shift=0, decay=1, rest=0, grown=1),
}


# A recurrence takes as many steps as the degree, and loses digits at each. Beyond this degree
# (some milliseconds) the result is NaN.
LARGEST_DEGREE = 1 << 20


def evaluate_polynomials(
    x, n, out, largest, slope, start, growth, factor, shift, decay, rest, grown,  # noqa: ANN001
) -> None:
    """out[i] = p(n[i]) at x[i]; 0 for negative n, NaN for n above ``largest``."""
    for i in range(x.shape[0]):
        before, now = 1.0, slope * x[i] + start
        if n[i] > largest:
            now = math.nan
        if n[i] < 1:
            now = 1.0 if n[i] == 0 else 0.0
        k = 1
        while k < n[i] and not math.isnan(now):
            step = ((growth * k + factor) * x[i] + shift * (2 * k + 1)) * now
            after = (step - (decay * k + rest) * before) / (grown * k + 1.0)
            before, now = now, after
            k += 1
        out[i] = now


def evaluate_derivatives(
    x, n, out, state, order, largest, slope, start, growth, factor, shift, decay,  # noqa: ANN001
    rest, grown,  # noqa: ANN001
) -> None:
    """out[i] = the derivative of ``order`` of p(n[i]) at x[i]; 0 for negative n.

    NaN for n above ``largest``.

    By Leibniz's rule, the derivatives of the recurrence hold those of lower order, which ``state``,
    (2, order + 1), keeps for the last two degrees.
    """
    for i in range(x.shape[0]):
        for d in range(order + 1):
            state[0, d] = 1.0 if d == 0 else 0.0
            state[1, d] = slope * x[i] + start if d == 0 else slope if d == 1 else 0.0
        if n[i] > largest:
            state[1, order] = math.nan
        k = 1
        while k < n[i] and not math.isnan(state[1, order]):
            line = growth * k + factor
            for d in range(order, -1, -1):
                step = (line * x[i] + shift * (2 * k + 1)) * state[1, d]
                lower = d * line * state[1, d - 1] if d > 0 else 0.0
                after = (step + lower - (decay * k + rest) * state[0, d]) / (grown * k + 1.0)
                state[0, d], state[1, d] = state[1, d], after
            k += 1
        out[i] = state[1, order] if n[i] > 0 else state[0, order] if n[i] == 0 else 0.0


def polynomial_derivative(x: te.Tensor, n: te.Tensor, kind: str, order: int) -> te.Tensor:
    """The derivative of ``orthogonal_polynomial`` of an order >= 1; both (count,)."""
    wide = converted(x, float64)
    numbers = (order, LARGEST_DEGREE, *(float(v) for v in astuple(POLYNOMIALS[kind])))
    out = te.python_extern([x.shape, (2, order + 1)], [wide, n], evaluate_derivatives,
                           [float64, float64], scalars=numbers,
                           name=f"polynomial_{kind}_derivative")[0]
    return converted(out, x.dtype)


def orthogonal_polynomial(x: te.Tensor, n: te.Tensor, kind: str) -> te.Tensor:
    """The polynomial of degree ``n`` (int64) at ``x``, elementwise; both (count,)."""
    wide = converted(x, float64)
    numbers = (LARGEST_DEGREE, *(float(v) for v in astuple(POLYNOMIALS[kind])))
    out = te.python_extern([x.shape], [wide, n], evaluate_polynomials, [float64],
                           scalars=numbers, name=f"polynomial_{kind}")[0]
    return converted(out, x.dtype)


def integrate_gamma(a, x, out, upper) -> None:  # noqa: ANN001
    """out[i] = P(a[i], x[i]), or Q = 1 - P if ``upper`` (DLMF 8.2.4).

    The power series of P (DLMF 8.11.4) for x < a + 1, else the continued fraction of Q by Lentz's
    algorithm (DLMF 8.9.2).
    """
    for i in range(x.shape[0]):
        s, z = a[i], x[i]
        if not (s >= 0.0 and z >= 0.0) or (s == 0.0 and z == 0.0) or (s == math.inf
                                                                      and z == math.inf):
            out[i] = math.nan
            continue
        if s == 0.0 or z == math.inf:
            out[i] = 0.0 if upper else 1.0
            continue
        if z == 0.0 or s == math.inf:
            out[i] = 1.0 if upper else 0.0
            continue
        scale = math.exp(s * math.log(z) - z - math.lgamma(s))
        step = 0
        if z < s + 1.0:
            term = 1.0 / s
            total = term
            while step < 20000 and abs(term) > abs(total) * 1e-17:
                step += 1
                term *= z / (s + step)
                total += term
            lower = total * scale
            out[i] = 1.0 - lower if upper else lower
            continue
        b = z + 1.0 - s
        c, d = 1e300, 1.0 / b
        h, change = d, 0.0
        while step < 20000 and abs(change - 1.0) > 2e-16:
            step += 1
            product = -step * (step - s)
            b += 2.0
            d = product * d + b
            d = 1.0 / (d if abs(d) > 1e-300 else 1e-300)
            c = b + product / c
            c = c if abs(c) > 1e-300 else 1e-300
            change = c * d
            h *= change
        above = h * scale
        out[i] = above if upper else 1.0 - above


def incomplete_gamma(a: te.Tensor, x: te.Tensor, *, upper: bool) -> te.Tensor:
    """The regularised incomplete gamma function, elementwise; both (count,)."""
    out = te.python_extern([x.shape], [converted(a, float64), converted(x, float64)],
                           integrate_gamma, [float64], scalars=[upper],
                           name="incomplete_gamma")[0]
    return converted(out, x.dtype)
