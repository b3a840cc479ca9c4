"""Activation functions; the slopes at kinks are those of torch."""

from __future__ import annotations

import math

from weft.op.composites.emitter import Emitter, V, scaled

# Of "Self-Normalizing Neural Networks" (Klambauer et al. 2017).
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def elu(e: Emitter[V], x: V, alpha: float = 1.0, scale: float = 1.0,
        input_scale: float = 1.0) -> V:
    """``scale * x`` above 0, else ``scale * alpha * (e**(input_scale * x) - 1)``.

    Clevert et al. 2015. The exponential is that of min(x, 0), which cannot overflow where it is
    not selected; at 0 the slope is that of the exponential.
    """
    positive = x > 0
    low = scaled(e.call("where", positive, 0.0, x), input_scale)
    below = scaled(e.call("expm1", low), alpha * scale)
    return e.call("where", positive, scaled(x, scale), below)


def selu(e: Emitter[V], x: V, alpha: float = SELU_ALPHA, scale: float = SELU_SCALE) -> V:
    """ELU with the constants of self-normalizing networks."""
    return elu(e, x, alpha, scale)


def celu(e: Emitter[V], x: V, alpha: float = 1.0) -> V:
    """X above 0, else ``alpha * (e**(x / alpha) - 1)`` (Barron 2017); ``alpha`` is not 0."""
    return elu(e, x, alpha, 1.0, 1 / alpha)


def prelu(e: Emitter[V], x: V, slope: V) -> V:
    """X above 0, else ``slope * x``; ``slope`` broadcasts to ``x``."""
    return e.call("where", x > 0, x, x * slope)


def gelu(e: Emitter[V], x: V, approximate: str = "none") -> V:
    """X times the normal distribution function, by erf or by tanh (Hendrycks 2016)."""
    if approximate == "tanh":
        # x * (1 + c x²) overflows later than x + c x³.
        gate = e.call("tanh", x * math.sqrt(2 / math.pi) * (x * x * 0.044715 + 1))
    else:
        gate = e.call("erf", x * math.sqrt(0.5))
    return x * 0.5 * (gate + 1)


def silu(e: Emitter[V], x: V, alpha: float = 1.0) -> V:
    """``x * sigmoid(alpha * x)``: swish; with ``alpha=1.702`` an approximation of GELU."""
    return x * e.call("sigmoid", scaled(x, alpha))


def mish(e: Emitter[V], x: V) -> V:
    """X * tanh(softplus(x)) (Misra 2019)."""
    return x * e.call("tanh", softplus(e, x))


def softplus(e: Emitter[V], x: V, beta: float = 1.0, threshold: float = 20.0) -> V:
    """log(1 + e**(beta x)) / beta, and x itself where beta x exceeds ``threshold``.

    max(x, 0) + log1p(e**-|x|) neither overflows nor cancels. Its slope at 0 is 1/2: that of the
    maximum, because that of |x| is 0.
    """
    wide = scaled(x, beta)
    soft = e.call("maximum", wide, 0.0) + e.call("log1p", e.call("exp", -e.call("abs", wide)))
    if beta != 1:
        soft = soft / beta
    return soft if threshold == math.inf else e.call("where", wide > threshold, x, soft)


def logsigmoid(e: Emitter[V], x: V) -> V:
    """log(sigmoid(x)), without overflow."""
    return -softplus(e, -x, threshold=math.inf)


def softsign(e: Emitter[V], x: V) -> V:
    """X / (1 + abs(x))"""
    return x / (e.call("abs", x) + 1)


def hardtanh(e: Emitter[V], x: V, low: float = -1.0, high: float = 1.0) -> V:
    """x, limited to a range; unlike that of ``clamp`` the slope is 0 at the ends too."""
    return e.call("clip", x, a_min=float(low), a_max=float(high), flat_ends=True)


def relu6(e: Emitter[V], x: V) -> V:
    """min(max(x, 0), 6)"""
    return hardtanh(e, x, 0.0, 6.0)


def clipped_line(e: Emitter[V], x: V, slope: float = 0.2, offset: float = 0.5) -> V:
    """min(max(slope * x + offset, 0), 1), ONNX's hard sigmoid."""
    return hardtanh(e, x * slope + offset, 0.0, 1.0)


def hardsigmoid(e: Emitter[V], x: V) -> V:
    """min(max(x + 3, 0), 6) / 6"""
    return hardtanh(e, x + 3, 0.0, 6.0) * (1 / 6)


def hardswish(e: Emitter[V], x: V) -> V:
    """X * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return x * hardsigmoid(e, x)


def threshold(e: Emitter[V], x: V, threshold: float, value: float = 0.0) -> V:
    """X above ``threshold``, ``value`` elsewhere."""
    return e.call("where", x > threshold, x, value)


def hardshrink(e: Emitter[V], x: V, lambd: float = 0.5) -> V:
    """x, and 0 where its magnitude is at most ``lambd``."""
    return e.call("where", e.call("abs", x) <= lambd, 0.0, x)


def softshrink(e: Emitter[V], x: V, lambd: float = 0.5) -> V:
    """X moved towards 0 by ``lambd``, and 0 within."""
    return x - e.call("clip", x, a_min=-float(lambd), a_max=float(lambd))


def shrink(e: Emitter[V], x: V, lambd: float = 0.5, bias: float = 0.0) -> V:
    """X + bias below -lambd, x - bias above lambd, else 0 (ONNX's Shrink)."""
    inner = e.call("where", x > lambd, x - bias, 0.0)
    return e.call("where", x < -lambd, x + bias, inner)


def tanhshrink(e: Emitter[V], x: V) -> V:
    """X - tanh(x)"""
    return x - e.call("tanh", x)
