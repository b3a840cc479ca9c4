"""Norms of vectors, moments, and logarithms of sums, along axes.

``axes`` are the reduced axes; ``None`` are all of them.
"""

from __future__ import annotations

import math

from weft.op.composites.emitter import Emitter, V
from weft.op.composites.pairs import SMALL_POWERS, small_power

Axes = int | tuple[int, ...] | None


def p_norm(e: Emitter[V], x: V, p: float = 2.0, axes: Axes = None, keepdims: bool = False) -> V:
    """``sum(abs(x)**p)**(1 / p)``; infinite ``p`` gives an extreme magnitude, 0 counts nonzeros."""
    over = {"axis": axes, "keepdims": keepdims}
    if math.isinf(p):
        return e.call("max" if p > 0 else "min", e.call("abs", x), **over)
    if p == 0:
        return e.call("sum", e.call("cast_like", e.call("not_equal", x, 0.0), x), **over)
    if p == 1:
        return e.call("sum", e.call("abs", x), **over)
    if p == 2:
        return root_of_sum(e, e.call("sum", x * x, **over), p)
    size = e.call("abs", x)
    if p in SMALL_POWERS:
        powers = small_power(e, size, p)
    else:  # the slope at 0, which is infinite below 1, is taken as 0
        nothing = e.call("equal", size, 0.0)
        powers = e.call("power", e.call("where", nothing, 1.0, size), p)
        powers = e.call("where", nothing, 0.0 if p == abs(p) else math.inf, powers)
    return root_of_sum(e, e.call("sum", powers, **over), p)


def root_of_sum(e: Emitter[V], total: V, p: float) -> V:
    """``total ** (1 / p)`` of a sum that is not negative, with slope 0 at 0: a norm has none."""
    nothing = e.call("equal", total, 0.0)
    safe = e.call("where", nothing, 1.0, total)
    root = e.call("sqrt", safe) if p == 2 else e.call("power", safe, 1.0 / p)
    return e.call("where", nothing, 0.0, root)


def normalize(e: Emitter[V], x: V, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> V:
    """``x / max(p-norm, eps)`` along ``axis``."""
    return x / e.call("maximum", p_norm(e, x, p, (axis,), keepdims=True), eps)


def cosine_similarity(e: Emitter[V], x: V, y: V, axis: int = 1, eps: float = 1e-8) -> V:
    """x·y / (max(|x|, eps) max(|y|, eps)) along ``axis``."""
    product = normalize(e, x, 2.0, axis, eps) * normalize(e, y, 2.0, axis, eps)
    return e.call("sum", product, axis=(axis,), keepdims=False)


def moments(e: Emitter[V], x: V, axes: Axes) -> tuple[V, V, V]:
    """The mean, ``x`` minus the mean, and the variance; reduced axes stay, with size 1.

    The variance is the mean square of the centred data: E[x²] - E[x]² would cancel where the mean
    is large.
    """
    mean = e.call("mean", x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, centred, e.call("mean", centred * centred, axis=axes, keepdims=True)


def logsumexp(e: Emitter[V], x: V, axes: Axes) -> V:
    """log(sum(exp(x))), reduced axes kept; the maximum is subtracted first against overflow.

    An infinite maximum is not subtracted, because the difference would be NaN.
    """
    top = e.detached(e.call("max", x, axis=axes, keepdims=True))
    shift = e.call("where", e.call("isfinite", top), top, 0.0)
    return e.call("log", e.call("sum", e.call("exp", x - shift), axis=axes, keepdims=True)) + shift
