"""Arithmetic of complex numbers, each a pair of values: the real and the imaginary part.

Where C has a rule for infinities, zeros and numbers that are not one (Annex G), results follow it;
products are the four real ones. No intermediate value overflows where the result does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.op.composites.emitter import Emitter, V
from weft.op.composites.pairs import atan2, hypot

Pair = tuple[V, V]


def product(a: Pair[V], b: Pair[V], times: Callable[[V, V], V]) -> Pair[V]:
    """The result of a bilinear function of complex numbers from that of real ones."""
    return (times(a[0], b[0]) - times(a[1], b[1]), times(a[0], b[1]) + times(a[1], b[0]))


def multiply(_e: Emitter[V], a: Pair[V], b: Pair[V]) -> Pair[V]:
    """``a * b``."""
    return product(a, b, lambda x, y: x * y)


def divide(e: Emitter[V], a: Pair[V], b: Pair[V]) -> Pair[V]:
    """``a / b`` by Smith's method: the smaller part of ``b`` is divided by the larger."""
    (x, y), (c, d) = a, b
    swaps = e.call("abs", d) > e.call("abs", c)
    large, small = e.call("where", swaps, d, c), e.call("where", swaps, c, d)
    is_zero = e.call("equal", large, 0.0)
    ratio = small / e.call("where", is_zero, 1.0, large)
    large = e.call("where", is_zero, 0.0, large)
    x, y, below = x / large, y / large, ratio * ratio + 1
    real = e.call("where", swaps, x * ratio + y, x + y * ratio)
    imag = e.call("where", swaps, y * ratio - x, y - x * ratio)
    return real / below, imag / below


def reciprocal(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``1 / z``."""
    one = e.call("ones_like", z[0])
    return divide(e, (one, e.call("zeros_like", z[0])), z)


def conjugate(_e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """The number with the other sign of its imaginary part."""
    return z[0], -z[1]


def magnitude(e: Emitter[V], z: Pair[V]) -> V:
    """``|z|``."""
    return hypot(e, *z)


def angle(e: Emitter[V], z: Pair[V]) -> V:
    """The angle from the positive real axis, from -pi to pi."""
    return atan2(e, z[1], z[0])


def polar(e: Emitter[V], length: V, turn: V) -> Pair[V]:
    """The number of a length and an angle."""
    return length * e.call("cos", turn), length * e.call("sin", turn)


def sign(e: Emitter[V], z: Pair[V]) -> Pair[V]:
    """``z / |z|``; 0 of 0."""
    length = magnitude(e, z)
    divisor = e.call("where", e.call("equal", length, 0.0), 1.0, length)
    return z[0] / divisor, z[1] / divisor


def equal(e: Emitter[V], a: Pair[V], b: Pair[V]) -> V:
    """Whether both parts are equal."""
    return e.call("logical_and", *[e.call("equal", x, y) for x, y in zip(a, b, strict=True)])


def not_equal(e: Emitter[V], a: Pair[V], b: Pair[V]) -> V:
    """Whether one of the parts differs."""
    return e.call("logical_or", *[e.call("not_equal", x, y) for x, y in zip(a, b, strict=True)])


def is_true(e: Emitter[V], z: Pair[V]) -> V:
    """Whether a number is not zero."""
    return e.call("logical_or", *[e.call("not_equal", x, 0.0) for x in z])


def any_part(name: str) -> Callable[[Emitter[V], Pair[V]], V]:
    """The predicate that holds if it holds for one of the parts."""
    return lambda e, z: e.call("logical_or", *[e.call(name, x) for x in z])


def all_parts(name: str) -> Callable[[Emitter[V], Pair[V]], V]:
    """The predicate that holds if it holds for both parts."""
    return lambda e, z: e.call("logical_and", *[e.call(name, x) for x in z])


def truth(name: str) -> Callable[..., V]:
    """A logical function, of whether numbers are not zero."""
    return lambda e, *zs: e.call(name, *[is_true(e, z) for z in zs])


def with_sign(e: Emitter[V], size: V, like: V) -> V:
    """``size``, not negative, with the sign of ``like``, that of a zero too."""
    negative = e.call("logical_or", like < 0, e.call("divide", 1.0, like) < 0)
    return e.call("where", negative, -size, size)


def log_magnitude(e: Emitter[V], z: Pair[V]) -> V:
    """``log |z|``, accurate near 1."""
    width, height = (e.call("abs", x) for x in z)
    large, small = e.call("maximum", width, height), e.call("minimum", width, height)
    near = e.call("logical_and", large > 0.5, large < 2.0)
    inside = e.call("where", near, large, 1.0)
    close = e.call("log1p", (inside - 1) * (inside + 1) + small * small) * 0.5
    usual = e.call("logical_and", large > 0, e.call("isfinite", large))
    ratio = small / e.call("where", usual, large, 1.0)
    far = e.call("log", large) + e.call("log1p", e.call("where", usual, ratio * ratio, 0.0)) * 0.5
    endless = e.call("logical_or", e.call("isinf", z[0]), e.call("isinf", z[1]))
    return e.call("where", endless, math.inf, e.call("where", near, close, far))
