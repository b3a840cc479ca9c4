"""Exponential, trigonometric and inverse functions of complex numbers, as pairs of values.

Branch cuts, signed zeros and infinities are those of C (Annex G). The formulas of the inverse
functions are Kahan's ("Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.op.composites.complex_arithmetic import (
    Pair,
    angle,
    divide,
    is_true,
    log_magnitude,
    multiply,
    reciprocal,
    with_sign,
)
from weft.op.composites.emitter import Emitter, V
from weft.op.composites.pairs import atan2

Function = Callable[[Emitter[V], Pair[V]], Pair[V]]


def _is(e: Emitter[V], x: V, number: float) -> V:
    return e.call("equal", x, number)


def _either(e: Emitter[V], a: V, b: V) -> V:
    return e.call("logical_or", a, b)


def _both(e: Emitter[V], a: V, b: V) -> V:
    return e.call("logical_and", a, b)


def _is_strange(e: Emitter[V], x: V) -> V:
    """Whether x is infinite or no number."""
    return e.call("logical_not", e.call("isfinite", x))


def exp(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """E to the power z."""
    size = e.call("exp", z[0])
    strange = _is_strange(e, z[1])
    gone = _both(e, _is(e, z[0], -math.inf), strange)
    real = e.call("where", _both(e, _is(e, z[0], math.inf), strange), math.inf,
                  size * e.call("cos", z[1]))
    imag = e.call("where", _is(e, z[1], 0.0), z[1], size * e.call("sin", z[1]))
    return e.call("where", gone, 0.0, real), e.call("where", gone, 0.0, imag)


def expm1(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``exp(z) - 1``, accurate near 0."""
    whole = exp(e, z)
    half = e.call("sin", z[1] * 0.5)
    near = e.call("expm1", z[0]) * e.call("cos", z[1]) - half * half * 2
    inside = _both(e, e.call("isfinite", whole[0]), z[0] > -math.inf)
    return e.call("where", inside, near, whole[0] - 1), whole[1]


def log(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The natural logarithm; the cut is the negative real axis."""
    return log_magnitude(e, z), angle(e, z)


def log_of_base(base: float) -> Function[V]:
    """The logarithm to a base."""
    factor = 1 / math.log(base)

    def apply(e: Emitter[V], z: Pair[V]) -> Pair[V]:
        real, imag = log(e, z)
        return real * factor, imag * factor

    return apply


def log1p(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``log(1 + z)``, accurate near 0."""
    shifted = (z[0] + 1, z[1])
    small = _both(e, e.call("abs", z[0]) < 0.5, e.call("abs", z[1]) < 0.5)
    x, y = (e.call("where", small, part, 0.0) for part in z)
    near = e.call("log1p", x * (x + 2) + y * y) * 0.5
    return e.call("where", small, near, log_magnitude(e, shifted)), angle(e, shifted)


def power(e: Emitter[V], z: Pair[V], exponent: Pair[V]) -> Pair[V]:
    """``z ** exponent`` through the logarithm; 0 to a power with a positive real part is 0."""
    is_zero = e.call("logical_not", is_true(e, z))
    vanishes = _both(e, is_zero, exponent[0] > 0)
    is_one = e.call("logical_not", is_true(e, exponent))
    base = (e.call("where", vanishes, 1.0, z[0]), z[1])
    real, imag = exp(e, multiply(e, exponent, log(e, base)))
    real = e.call("where", is_one, 1.0, e.call("where", vanishes, 0.0, real))
    return real, e.call("where", _either(e, is_one, vanishes), 0.0, imag)


def sqrt(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The root with a real part that is not negative."""
    x, y = z
    width, height = e.call("abs", x), e.call("abs", y)
    large, small = e.call("maximum", width, height), e.call("minimum", width, height)
    usual = _both(e, large > 0, e.call("isfinite", large))
    unit = e.call("where", usual, large, 1.0)
    ratio, share = (e.call("where", usual, v, 1.0) / unit for v in (small, width))
    length = e.call("sqrt", ratio * ratio + 1)
    root = e.call("sqrt", unit) * e.call("sqrt", (share + length) * 0.5)
    other = e.call("where", usual, height, 0.0) / (root * 2)
    left = x < 0
    real, imag = e.call("where", left, other, root), e.call("where", left, root, other)
    found = [e.call("where", usual, v, large) for v in (real, imag)]  # zeros and NaN themselves
    flat = e.call("isinf", x)
    real = e.call("where", flat, e.call("where", left, y - y, math.inf), found[0])
    imag = e.call("where", flat, e.call("where", left, math.inf, y - y), found[1])
    endless = e.call("isinf", y)
    real = e.call("where", endless, math.inf, real)
    return real, with_sign(e, e.call("where", endless, math.inf, e.call("abs", imag)), y)


def rsqrt(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``1 / sqrt(z)``."""
    return reciprocal(e, sqrt(e, z))


def sigmoid(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``1 / (1 + exp(-z))``."""
    real, imag = exp(e, (-z[0], -z[1]))
    return reciprocal(e, (real + 1, imag))


def sinh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The hyperbolic sine."""
    x, y = z
    real = e.call("sinh", x) * e.call("cos", y)
    imag = e.call("cosh", x) * e.call("sin", y)
    keeps = _either(e, _is(e, x, 0.0), _both(e, e.call("isinf", x), _is_strange(e, y)))
    return e.call("where", keeps, x, real), e.call("where", _is(e, y, 0.0), y, imag)


def cosh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The hyperbolic cosine."""
    x, y = z
    real = e.call("cosh", x) * e.call("cos", y)
    imag = e.call("sinh", x) * e.call("sin", y)
    endless = _both(e, e.call("isinf", x), _is_strange(e, y))
    level = _both(e, _is(e, x, 0.0), _is_strange(e, y))
    flat = e.call("where", x < 0, -y, y)
    imag = e.call("where", _is(e, y, 0.0), flat, e.call("where", level, 0.0, imag))
    return e.call("where", endless, math.inf, real), imag


_FAR = 20.0  # where the hyperbolic tangent is 1 in float64


def tanh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The hyperbolic tangent."""
    x, y = z
    far = e.call("abs", x) > _FAR
    near = e.call("where", far, 0.0, x)
    up, across = e.call("sinh", near), e.call("cosh", near)
    sine, cosine = e.call("sin", y), e.call("cos", y)
    below = up * up + cosine * cosine
    decay = e.call("exp", e.call("abs", x) * -2) * 4
    turned = sine * cosine
    limit = e.call("where", _is_strange(e, y), 0.0, turned * decay)
    level = _both(e, _is(e, x, 0.0), _is_strange(e, y))
    real = e.call("where", far, e.call("sign", x), e.call("where", level, x, up * across / below))
    imag = e.call("where", far, limit, turned / below)
    return real, e.call("where", _is(e, y, 0.0), y, imag)


def rotated(function: Function[V]) -> Function[V]:
    """``-i f(i z)``: the trigonometric function of an odd hyperbolic one, and the reverse."""

    def apply(e: Emitter[V], z: Pair[V]) -> Pair[V]:
        real, imag = function(e, (-z[1], z[0]))
        return imag, -real

    return apply


def cos(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The cosine."""
    return cosh(e, (-z[1], z[0]))


def _roots(e: Emitter[V], z: Pair[V]) -> tuple[Pair[V], Pair[V], V]:
    """The roots of ``1 - z`` and ``1 + z``, and whether z is infinite; 0 where it is."""
    endless = _either(e, e.call("isinf", z[0]), e.call("isinf", z[1]))
    x, y = (e.call("where", endless, 0.0, part) for part in z)
    return sqrt(e, (1 - x, -y)), sqrt(e, (x + 1, y)), endless


def asin(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse sine; the cuts are beyond -1 and 1 on the real axis."""
    (a, b), (c, d), endless = _roots(e, z)
    x, y = z
    inside = atan2(e, e.call("where", endless, 0.0, x), a * c - b * d)
    outside = atan2(e, x, e.call("abs", y))
    real = e.call("where", endless, outside, inside)
    real = e.call("where", _is(e, x, 0.0), x, real)
    height = e.call("asinh", e.call("abs", a * d - b * c))
    return real, with_sign(e, e.call("where", endless, math.inf, height), y)


def acos(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse cosine; the cuts are beyond -1 and 1 on the real axis."""
    (a, b), (c, d), endless = _roots(e, z)
    x, y = z
    outside = atan2(e, e.call("abs", y), x)
    real = e.call("where", endless, outside, atan2(e, a, c) * 2)
    real = e.call("where", _is(e, x, 0.0), math.pi / 2, real)
    height = e.call("asinh", e.call("abs", c * b - d * a))
    return real, -with_sign(e, e.call("where", endless, math.inf, height), y)


def acosh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse hyperbolic cosine, not negative; the cut is below 1 on the real axis."""
    real, imag = acos(e, z)
    # Of one that is no number, the angle is none either unless it is known.
    return e.call("abs", imag), with_sign(e, real, z[1])


def atanh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse hyperbolic tangent; the cuts are beyond -1 and 1 on the real axis."""
    x, y = z
    far = _either(e, e.call("abs", x) > _DISTANT, e.call("abs", y) > _DISTANT)
    width = e.call("where", far, 0.5, e.call("abs", x))
    height = e.call("where", far, 0.5, y)
    gap = 1 - width
    below = gap * gap + height * height
    near = e.call("log1p", width * 4 / below) * 0.25
    bend = atan2(e, height * 2, gap * (width + 1) - height * height) * 0.5
    usual = _both(e, far, e.call("logical_not", _either(
        e, e.call("isinf", x), e.call("isinf", y))))
    p, q = (e.call("where", usual, part, 1.0) for part in z)
    beyond = e.call("where", usual, e.call("abs", reciprocal(e, (p, q))[0]), 0.0)
    real = e.call("where", _is(e, x, 0.0), 0.0, e.call("where", far, beyond, near))
    edge = with_sign(e, y * 0 + math.pi / 2, y)
    ends = e.call("where", e.call("isinf", y), e.call("where", y < 0, -math.pi / 2, math.pi / 2),
                  edge)
    return with_sign(e, real, x), e.call("where", far, ends, bend)


_DISTANT = 1e9  # where atanh(z) is 1 / z beside a right angle, in float64


def tan(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The tangent."""
    return rotated(tanh)(e, z)


__all__ = ["acos", "acosh", "asin", "atanh", "cos", "cosh", "divide", "exp", "expm1", "log",
           "log1p", "log_of_base", "power", "rotated", "rsqrt", "sigmoid", "sinh", "sqrt", "tan",
           "tanh"]
