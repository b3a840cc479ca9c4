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


def _times(e: Emitter[V], size: V, factor: V) -> V:
    """``size * factor``; 0 times what is not finite is 0."""
    lost = _both(e, _is(e, factor, 0.0), _is_strange(e, size))
    return e.call("where", lost, factor, size * factor)


def exp(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """E to the power z."""
    size = e.call("exp", z[0])
    strange = _is_strange(e, z[1])
    gone = _both(e, _is(e, z[0], -math.inf), strange)
    real = e.call("where", _both(e, _is(e, z[0], math.inf), strange), math.inf,
                  size * e.call("cos", z[1]))
    imag = _times(e, size, e.call("sin", z[1]))
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
    other = e.call("where", usual, y, 0.0) / (root * 2)
    left, upper = x < 0, with_sign(e, e.call("ones_like", y), y)
    real, imag = e.call("where", left, other * upper, root), e.call(
        "where", left, root * upper, other)
    real, imag = e.call("where", usual, real, large), e.call("where", usual, imag, y)
    none = e.call("isnan", large)
    imag = e.call("where", none, large, imag)
    flat, endless = e.call("isinf", x), e.call("isinf", y)
    far = e.call("where", e.call("isnan", y), y, 0.0)
    ends = with_sign(e, e.call("abs", x), y)  # infinite, where it is used
    real = e.call("where", flat, e.call("where", left, far, x), real)
    imag = e.call("where", flat, e.call("where", left, ends, with_sign(e, far, y)), imag)
    return e.call("where", endless, math.inf, real), e.call("where", endless, y, imag)


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
    imag = _times(e, e.call("cosh", x), e.call("sin", y))
    ends = _either(e, _is(e, x, 0.0), e.call("isinf", x))
    return e.call("where", _both(e, ends, _is_strange(e, y)), x, real), imag


def cosh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The hyperbolic cosine."""
    x, y = z
    real = e.call("cosh", x) * e.call("cos", y)
    rise = e.call("sinh", x)
    imag = rise * e.call("sin", y)
    endless = _both(e, e.call("isinf", x), _is_strange(e, y))
    level = _both(e, _is(e, x, 0.0), _is_strange(e, y))
    flat = e.call("where", x < 0, -y, y)
    lost = _both(e, _is(e, y, 0.0), _is_strange(e, rise))
    imag = e.call("where", lost, flat, e.call("where", level, 0.0, imag))
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
    swing = sine * cosine
    none = _both(e, _is_strange(e, y), e.call("isinf", x))
    limit = e.call("where", none, 0.0, swing * decay)
    top = e.call("where", _both(e, _is_strange(e, y), e.call("isfinite", x)), y - y,
                 e.call("sign", x))
    level = _both(e, _is(e, x, 0.0), _is_strange(e, y))
    real = e.call("where", far, top, e.call("where", level, x, up * across / below))
    imag = e.call("where", far, limit, swing / below)
    return real, e.call("where", _both(e, _is(e, y, 0.0), e.call("isnan", x)), y, imag)


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
    real = e.call("where", endless, atan2(e, x, e.call("abs", y)), inside)
    real = e.call("where", _both(e, _is(e, x, 0.0), e.call("isnan", y)), x, real)
    height = e.call("asinh", a * d - b * c)
    return real, e.call("where", endless, _unbounded(e, y), height)


def acos(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse cosine; the cuts are beyond -1 and 1 on the real axis."""
    (a, b), (c, d), endless = _roots(e, z)
    x, y = z
    real = e.call("where", endless, atan2(e, e.call("abs", y), x), atan2(e, a, c) * 2)
    real = e.call("where", _both(e, _is(e, x, 0.0), e.call("isnan", y)), math.pi / 2, real)
    height = e.call("asinh", c * b - d * a)
    return real, e.call("where", endless, -_unbounded(e, y), height)


def acosh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse hyperbolic cosine, not negative; the cut is below 1 on the real axis."""
    x, y = z
    endless = _either(e, e.call("isinf", x), e.call("isinf", y))
    near = tuple(e.call("where", endless, 0.0, part) for part in z)
    (a, b), (c, d) = sqrt(e, (near[0] - 1, near[1])), sqrt(e, (near[0] + 1, near[1]))
    turn = e.call("where", endless, atan2(e, y, x), atan2(e, b, c) * 2)
    turn = e.call("where", _both(e, _is(e, x, 0.0), e.call("isnan", y)), math.pi / 2, turn)
    return e.call("where", endless, math.inf, e.call("asinh", a * c + b * d)), turn


def _unbounded(e: Emitter[V], y: V) -> V:
    """Infinity with the sign of y."""
    return with_sign(e, e.call("ones_like", y) * math.inf, y)


def atanh(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The inverse hyperbolic tangent; the cuts are beyond -1 and 1 on the real axis."""
    x, y = z
    far = _either(e, e.call("abs", x) > _DISTANT, e.call("abs", y) > _DISTANT)
    side = with_sign(e, e.call("ones_like", x), x)
    width = e.call("where", far, 0.5, x * side)
    height = e.call("where", far, 0.5, y)
    gap = 1 - width
    below = gap * gap + height * height
    near = e.call("log1p", width * 4 / below) * 0.25
    bend = atan2(e, height * 2, gap * (width + 1) - height * height) * 0.5
    endless = _either(e, e.call("isinf", x), e.call("isinf", y))
    usual = _both(e, far, e.call("logical_not", endless))
    p, q = (e.call("where", usual, part, 1.0) for part in z)
    beyond = e.call("where", usual, e.call("abs", reciprocal(e, (p, q))[0]), 0.0)
    real = e.call("where", far, beyond, near)
    real = e.call("where", _both(e, _is(e, x, 0.0), e.call("isnan", y)), 0.0, real)
    none = _either(e, e.call("isnan", y), _both(e, e.call("isnan", x), e.call("isfinite", y)))
    ends = with_sign(e, e.call("where", none, x - x + y, math.pi / 2), y)
    return real * side, e.call("where", far, ends, bend)


_DISTANT = 1e9  # where atanh(z) is 1 / z beside a right angle, in float64
