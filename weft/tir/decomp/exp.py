"""``exp`` and ``sigmoid``.

``exp(x) = 2**n * exp(r)`` with ``r = x - n ln 2``, where ln 2 is split into two parts (Cody and
Waite). float64: ``n`` is the integer nearest to ``x / ln 2``, so ``|r| <= ln(2)/2``. float32: ``n``
is a multiple of 1/16 whose fractional power of two comes from a table, so ``|r| <= ln(2)/32`` and a
short polynomial suffices.
"""

from __future__ import annotations

import numpy as np

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import EXP_32, EXP_64
from weft.tir.decomp.tables import EXP_POWERS
from weft.tir.expr import Call, PrimExpr, minimum, select

LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that n times it is exact.
LN2_PARTS = {32: (0.693115234375, 3.194618494530942e-05),
             64: (0.6931471803691238, 1.9082149292705877e-10)}  # fmt: skip
_COEFFICIENTS = {32: EXP_32, 64: EXP_64}
# Number of fraction bits of ``n``.
_FRACTION_BITS = {32: 4, 64: 0}
# Below the first, the result is 0. ``n`` is clamped at the second, where the result is infinite.
_LOWEST = {32: -104.0, 64: -746.0}
_HIGHEST_POWER = {32: 129, 64: 1025}
_ROUNDED_POWERS = np.array(EXP_POWERS, np.float32)
# The relative rounding errors of the powers in float32.
_ROUNDING_ERRORS = [float(e) for e in np.array(EXP_POWERS) / _ROUNDED_POWERS - 1.0]
# Shifting ``n`` into the exponent field leaves its fraction in the mantissa. Adding these constants
# replaces that fraction by the mantissa of ``2**n``.
_MANTISSAS = [int(bits) - (127 << 23) - (j << 19)
              for j, bits in enumerate(_ROUNDED_POWERS.view(np.int32))]
# Multiplied by 2**_LIFT, ``exp`` of any argument in (_LOWEST, 0] is a normal number.
_LIFT = 64


def exp_in(body: Body, x: PrimExpr) -> PrimExpr:
    """``exp(x)`` within 2 ulp, as values of ``body``; NaN propagates."""
    bits = body.dtype.bits
    inside = body.let("inside", _not_below_lowest(body, x))
    magic = _magic(body)
    shifted = body.multiply_add(inside, LOG2_E, magic)
    # Positive floats compare like their bits as integers. Beyond the clamp, the result is infinite.
    end = body.bits(body.real(magic + _HIGHEST_POWER[bits]))
    index = body.let("index", minimum(body.bits(shifted), end))
    n = body.let("n", body.from_bits(index) - body.real(magic))
    has_table = _FRACTION_BITS[bits] > 0
    power = body.table_lookup("power", index, EXP_POWERS) if has_table else body.real(1.0)
    growth = _growth(body, _remainder(body, inside, n))
    value = body.let("value", body.multiply_add(power, growth, power))
    return body.let("exp", Call(body.dtype, "times_power_of_two", (value, n)))


def lifted_exp_in(body: Body, x: PrimExpr, lift: int = 0) -> PrimExpr:
    """``exp(x) * 2**lift`` within 1 ulp, for arguments whose result is a normal number."""
    form, fraction = body.format, _FRACTION_BITS[body.dtype.bits]
    magic = _magic(body) + form.bias + lift
    shifted = body.let("n_shifted", body.multiply_add(x, LOG2_E, magic))
    n = body.let("n", shifted - body.real(magic))
    # Shifted into the exponent field, ``n`` plus the bias is a power of two; other bits are lost.
    index = body.bits(shifted)
    bits = body.shift_left(index, form.mantissa_bits - fraction)
    error = None
    if fraction:
        bits = bits + body.table_lookup("mantissa", index, _MANTISSAS)
        error = body.table_lookup("error", index, _ROUNDING_ERRORS)
    power = body.let("power", body.from_bits(bits))
    growth = _growth(body, _remainder(body, x, n), error)
    return body.let("exp", body.multiply_add(power, growth, power))


def _not_below_lowest(body: Body, x: PrimExpr) -> PrimExpr:
    lowest = body.real(_LOWEST[body.dtype.bits])
    return select(x < lowest, lowest, x)


def _magic(body: Body) -> float:
    """Adding it leaves ``n`` in the low bits."""
    return body.format.round_magic / 2.0 ** _FRACTION_BITS[body.dtype.bits]


def _remainder(body: Body, x: PrimExpr, n: PrimExpr) -> PrimExpr:
    high, low = LN2_PARTS[body.dtype.bits]
    return body.let("r", body.multiply_add(n, -low, body.multiply_add(n, -high, x)))


def _growth(body: Body, r: PrimExpr, error: PrimExpr | None = None) -> PrimExpr:
    """``exp(r) - 1``, plus a small relative ``error``."""
    q = body.polynomial("q", r, _COEFFICIENTS[body.dtype.bits])
    return body.multiply_add(r * r, q, r if error is None else r + error)


def exp(x: PrimExpr) -> PrimExpr:
    """Euler's number to the power ``x``, within 2 ulp."""
    body = Body(x.dtype)
    return body.result(exp_in(body, body.let("x", x)))


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``, within 2 ulp.

    With ``e = exp(-|x|)`` and ``q = e / (1 + e)``, it is ``1 - q`` for positive ``x`` and
    ``e - e q`` for negative ``x``: for small ``e``, the rounding error of ``q`` is negligible.
    Numerator and denominator are scaled by a power of two that keeps them normal.
    """
    body = Body(x.dtype)
    x = body.let("x", x)
    below = body.let("below", _not_below_lowest(body, body.negative_magnitude(x)))
    one, e = body.real(2.0**_LIFT), lifted_exp_in(body, below, _LIFT)
    q = e / (e + one)
    whole = select(x >= body.real(0.0), body.real(1.0), e * body.real(2.0**-_LIFT))
    whole = body.let("whole", whole)
    return body.result(body.multiply_add(body.real(0.0) - q, whole, whole))
