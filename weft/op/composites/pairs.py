"""Functions of two numbers: angles, lengths, small powers."""

from __future__ import annotations

import math

from weft.op.composites.emitter import Emitter, V


def atan2(e: Emitter[V], y: V, x: V) -> V:
    """The angle of the point (x, y), from -pi to pi, with the signs of zeros and infinities of C.

    The quotient is that of the smaller by the larger magnitude, and the divisor that is not used
    is kept from 0, so that gradients are finite; at the origin they are 0.
    """
    endless = e.call("logical_and", e.call("isinf", x), e.call("isinf", y))
    origin = e.call("logical_and", e.call("equal", x, 0.0), e.call("equal", y, 0.0))
    left, below = _is_negative(e, x), _is_negative(e, y)
    rise, run = (e.call("where", endless, e.call("sign", v), v) for v in (y, x))
    rise = e.call("where", origin, e.detached(rise), rise)
    flat = e.call("abs", run) >= e.call("abs", rise)
    divides = e.call("logical_and", flat, e.call("not_equal", run, 0.0))
    angle = e.call("atan", rise / e.call("where", divides, run, 1.0))
    shifted = e.call("where", below, angle - math.pi, angle + math.pi)
    angle = e.call("where", left, shifted, angle)
    steep = e.call("sign", rise) * (math.pi / 2) - e.call(
        "atan", run / e.call("where", flat, 1.0, rise))
    return e.call("where", flat, angle, steep)


def _is_negative(e: Emitter[V], x: V) -> V:
    """Whether x is negative or -0, whose reciprocal is."""
    return e.call("logical_or", x < 0, e.call("divide", 1.0, x) < 0)


def hypot(e: Emitter[V], x: V, y: V) -> V:
    """The root of x² + y², without overflow: the larger magnitude is factored out.

    The result is infinite if either argument is, even if the other one is NaN.
    """
    width, height = e.call("abs", x), e.call("abs", y)
    large, small = e.call("maximum", width, height), e.call("minimum", width, height)
    ratio = _ratio(e, small, large)
    length = large * e.call("sqrt", ratio * ratio + 1)
    endless = e.call("logical_or", e.call("isinf", x), e.call("isinf", y))
    return e.call("where", endless, math.inf, length)


def _ratio(e: Emitter[V], small: V, large: V) -> V:
    """The ratio of ``small <= large``: 1 if they are equal, also if infinite, but 0 for zeros."""
    divisor = e.call("where", e.call("equal", large, 0.0), 1.0, large)
    same = e.call("logical_and", e.call("equal", small, large), e.call("not_equal", large, 0.0))
    return e.call("where", same, 1.0, small / divisor)


def logaddexp(e: Emitter[V], x: V, y: V) -> V:
    """log(e**x + e**y) as max(x, y) + log1p(e**-|x - y|), without overflow.

    Equal infinities are their own result.
    """
    gap = e.call("where", e.call("equal", x, y), 0.0, x - y)
    return e.call("maximum", x, y) + e.call("log1p", e.call("exp", -e.call("abs", gap)))


SMALL_POWERS = (2, 3, 4)


def small_power(_e: Emitter[V], x: V, exponent: float) -> V:
    """X to a power of ``SMALL_POWERS``, as products."""
    square = x * x
    if exponent == 2:
        return square
    return square * (x if exponent == 3 else square)
