"""``exp`` and what is a few operations away from it: ``sigmoid``.

``exp(x) = 2**n * exp(r)`` with ``n`` the integer nearest to ``x / ln 2`` and ``r = x - n ln 2``
in two parts (Cody and Waite), ``|r| <= ln(2)/2``.
"""

from __future__ import annotations

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import EXP_32, EXP_64
from weft.tir.expr import Call, PrimExpr, select

LOG2_E = 1.4426950408889634
# ln 2 with the low mantissa bits of the first part zero, so that n times it is exact.
LN2_PARTS = {32: (0.693145751953125, 1.428606765330187e-06),
             64: (0.6931471803691238, 1.9082149292705877e-10)}  # fmt: skip
# Beyond these the result is 0 or infinity; the scaling still has room for them.
RANGES = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
COEFFICIENTS = {32: EXP_32, 64: EXP_64}


def exp_in(body: Body, x: PrimExpr, *, is_bounded: bool = False) -> PrimExpr:
    """``exp(x)`` within 2 ulp, as values of ``body``; NaN passes through the remainder.

    ``is_bounded``: the result is known to be a normal number.
    """
    bits = body.dtype.bits
    high, low = LN2_PARTS[bits]
    inside = x if is_bounded else body.let("clamped", body.clamp(x, *RANGES[bits]))
    magic = body.format.round_magic + body.format.bias
    shifted = body.let("n_shifted", body.fma(inside, LOG2_E, magic))
    n = body.let("n", shifted - body.real(magic))
    r = body.let("r", body.fma(n, -low, body.fma(n, -high, inside)))
    q = body.polynomial("q", r, COEFFICIENTS[bits])
    p = body.let("p", body.fma(r * r, q, r) + body.real(1.0))
    if not is_bounded:
        return body.let("exp", Call(body.dtype, "times_power_of_two", (p, n)))
    # Shifted to its place, an exponent with its bias is a power of two; the rest falls off.
    power = body.shift_left(body.bits(shifted), body.format.mantissa_bits)
    return body.let("exp", p * body.from_bits(power))


def exp(x: PrimExpr) -> PrimExpr:
    """Euler's number to the power ``x``, within 2 ulp."""
    body = Body(x.dtype)
    return body.result(exp_in(body, body.let("x", x)))


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``, through ``exp(-|x|)``, which neither overflows nor cancels."""
    body = Body(x.dtype)
    x = body.let("x", x)
    e = exp_in(body, body.real(0.0) - body.magnitude(x))
    top = select(x >= body.real(0.0), body.real(1.0), e)
    return body.result(top / (e + body.real(1.0)))
