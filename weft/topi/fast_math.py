"""Approximate functions of float32 with six to seven correct digits, faster than the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.ir.dtype import float32, int32
from weft.tir.expr import PrimExpr, const, maximum, minimum, select

# Rational approximations of f(x) / x in x^2 over [0, bound], by reweighted least squares of the
# relative error, highest power first. Beyond the bound f rounds to its limit in float32.
_TANH_BOUND = 9.0
_TANH_P = (5.085561928e-08, 3.161552766e-05, 4.009722873e-03, 1.378631575e-01, 1.0)
_TANH_Q = (
    7.393286472e-10, 1.619541268e-06, 4.209604665e-04, 2.774189827e-02, 4.711964818e-01, 1.0,
)  # fmt: skip
_ERF_BOUND = 3.92
_ERF_P = (
    2.050102603e-06, 2.848754903e-04, 3.765381167e-03, 5.274799097e-02, 1.904012563e-01,
    1.128379146,
)  # fmt: skip
_ERF_Q = (
    3.809149390e-05, 1.162474685e-03, 1.496874649e-02, 1.141069191e-01, 5.020714622e-01, 1.0,
)  # fmt: skip
# The same kind of fit of exp over [-log(2) / 2, log(2) / 2], relative error 2.6e-6.
_EXP = (0.0414585607, 0.1679090819, 0.500043593, 0.9999634044, 0.9999992613)
# Between these, 2**n is a normal number of float32.
_EXP_LOW, _EXP_HIGH = -87.0, 88.0


def fast_tanh(x: PrimExpr) -> PrimExpr:
    """Tanh to 5e-7."""
    return _quotient(x, _TANH_BOUND, _TANH_P, _TANH_Q)


def fast_erf(x: PrimExpr) -> PrimExpr:
    """Erf to 5e-7."""
    return _quotient(x, _ERF_BOUND, _ERF_P, _ERF_Q)


def fast_exp(x: PrimExpr) -> PrimExpr:
    """Exp to a relative error of 3e-6: a polynomial scaled by a power of two set in exponent bits.

    Arguments are clamped to [-87, 88]; NaN gives NaN.
    """
    near = minimum(maximum(x, const(_EXP_LOW, float32)), const(_EXP_HIGH, float32))
    whole = te.floor(near * const(1 / math.log(2), float32) + const(0.5, float32))
    rest = near - whole * const(math.log(2), float32)
    # NaN must not be converted to an integer; the polynomial carries it to the result.
    bits = te.shift_left(select(te.isnan(x), const(0, float32), whole).astype(int32) + 127,
                         const(23, int32))
    return _polynomial(rest, _EXP) * te.reinterpret(float32, bits)


def _quotient(
    x: PrimExpr, bound: float, above: Sequence[float], below: Sequence[float]
) -> PrimExpr:
    """``x P(x²) / Q(x²)`` with ``x`` clamped to ``±bound``."""
    near = minimum(maximum(x, const(-bound, float32)), const(bound, float32))
    square = near * near
    return near * _polynomial(square, above) / _polynomial(square, below)


def _polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """Polynomial evaluation by Horner's scheme; coefficients of the highest power first."""
    first, *rest = (const(c, float32) for c in coefficients)
    value: PrimExpr = first
    for coefficient in rest:
        value = value * x + coefficient
    return value
