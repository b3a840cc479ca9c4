"""Special functions of other operators: entropy, the normal distribution, sin(x) / x."""

from __future__ import annotations

import math

from weft.op.composites.emitter import Emitter, V


def entropy(e: Emitter[V], x: V) -> V:
    """-x log(x) above 0, 0 at 0, minus infinity below, NaN for NaN."""
    positive = x > 0
    safe = e.call("where", positive, x, 1.0)
    below = e.call("where", x < 0, -math.inf, e.call("where", e.call("isnan", x), x, 0.0))
    return e.call("where", positive, -safe * e.call("log", safe), below)


def ndtr(e: Emitter[V], x: V) -> V:
    """The standard normal distribution function."""
    return e.call("special.erfc", x * -math.sqrt(0.5)) * 0.5


def log_ndtr(e: Emitter[V], x: V) -> V:
    """The logarithm of the standard normal distribution function.

    Far below 0 that of the scaled complementary error function, whose argument is kept from
    overflow where it is not selected.
    """
    far = x < -1
    low = e.call("where", far, x, -1.0)
    high = e.call("where", far, 0.0, x)
    below = e.call("log", e.call("special.erfcx", low * -math.sqrt(0.5)) * 0.5) - low * low * 0.5
    above = e.call("log1p", e.call("special.erfc", high * math.sqrt(0.5)) * -0.5)
    return e.call("where", far, below, above)


def spherical_bessel_j0(e: Emitter[V], x: V) -> V:
    """The ratio sin(x) / x: 1 at 0, and 0 at infinities."""
    is_zero = e.call("equal", x, 0.0)
    ratio = e.call("sin", x) / e.call("where", is_zero, 1.0, x)
    ratio = e.call("where", e.call("isinf", x), 0.0, ratio)
    return e.call("where", is_zero, 1.0, ratio)
