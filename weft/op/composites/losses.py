"""Losses of single elements or rows, before their mean or sum is taken; ``x`` is predicted."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.op.composites.activations import softplus
from weft.op.composites.emitter import Emitter, V
from weft.op.composites.norms import p_norm


def squared_error(_e: Emitter[V], x: V, y: V) -> V:
    """(x - y)²"""
    gap = x - y
    return gap * gap


def absolute_error(e: Emitter[V], x: V, y: V) -> V:
    """abs(x - y)"""
    return e.call("abs", x - y)


def huber(e: Emitter[V], x: V, y: V, delta: float = 1.0) -> V:
    """(x - y)² / 2 below ``delta``, delta * (abs(x - y) - delta / 2) above (Huber 1964)."""
    size = e.call("abs", x - y)
    return e.call("where", size < delta, size * size * 0.5, (size - delta / 2) * delta)


def smooth_l1(e: Emitter[V], x: V, y: V, beta: float = 1.0) -> V:
    """(x - y)² / (2 beta) below ``beta``, abs(x - y) - beta / 2 above (Girshick 2015)."""
    return absolute_error(e, x, y) if beta == 0 else huber(e, x, y, beta) * (1 / beta)


def binary_cross_entropy(e: Emitter[V], p: V, y: V) -> V:
    """-(y log(p) + (1 - y) log(1 - p)), whose logarithms are at least -100.

    Where p is 0 or 1, the gradient is torch's, (p - y) / max(p (1 - p), 1e-12).
    """
    fixed = e.detached(p)
    slope = e.call("maximum", fixed * (1 - fixed), 1e-12)
    saturated = slope <= 1e-12
    inner = e.call("where", saturated, 0.5, p)
    log_p = e.call("where", saturated, e.call("maximum", e.call("log", fixed), -100.0),
                   e.call("log", inner))
    log_q = e.call("where", saturated, e.call("maximum", e.call("log1p", -fixed), -100.0),
                   e.call("log1p", -inner))
    straight = (p - fixed) * ((fixed - e.detached(y)) / slope)
    return (y - 1) * log_q - y * log_p + e.call("where", saturated, straight, 0.0)


def binary_cross_entropy_with_logits(e: Emitter[V], x: V, y: V, pos_weight: V | None = None) -> V:
    """Binary cross entropy of sigmoid(x), without overflow."""
    below = softplus(e, -x, threshold=math.inf)  # -log(sigmoid(x))
    if pos_weight is not None:
        below = below * ((pos_weight - 1) * y + 1)
    return (1 - y) * x + below


def kl_divergence(e: Emitter[V], x: V, y: V, log_target: bool = False) -> V:
    """Y (log(y) - x) for log-probabilities x; ``log_target`` gives log(y) for y."""
    if log_target:
        return e.call("exp", y) * (y - x)
    is_zero = e.call("equal", y, 0.0)
    safe = e.call("where", is_zero, 1.0, y)  # of negative probabilities the logarithm is NaN
    return e.call("where", is_zero, 0.0, y * e.call("log", safe)) - y * x


def poisson_nll(e: Emitter[V], x: V, y: V, log_input: bool = True, full: bool = False,
                eps: float = 1e-8) -> V:
    """e**x - y x, or x - y log(x + eps); ``full`` adds Stirling's approximation of log(y!)."""
    losses = e.call("exp", x) - y * x if log_input else x - y * e.call("log", x + eps)
    if not full:
        return losses
    safe = e.call("maximum", y, 1.0)
    extra = safe * e.call("log", safe) - safe + e.call("log", safe * (2 * math.pi)) * 0.5
    return losses + e.call("where", y > 1, extra, 0.0)


def gaussian_nll(e: Emitter[V], x: V, y: V, variance: V, full: bool = False,
                 eps: float = 1e-6) -> V:
    """(log(v) + (x - y)² / v) / 2 with v = max(variance, eps), which gets the whole gradient."""
    bounded = variance + e.detached(e.call("maximum", variance, eps) - variance)
    losses = (e.call("log", bounded) + squared_error(e, x, y) / bounded) * 0.5
    return losses + 0.5 * math.log(2 * math.pi) if full else losses


def softmax_cross_entropy(e: Emitter[V], logits: V, shares: V, axis: int = -1) -> V:
    """-sum(y log(softmax(x))) along ``axis``, for the shares y of the classes."""
    logs = e.call("nn.log_softmax", logits, axis=axis)
    return -e.call("sum", logs * shares, axis=(axis,))


def margin_ranking(e: Emitter[V], x1: V, x2: V, y: V, margin: float = 0.0) -> V:
    """max(0, -y (x₁ - x₂) + margin) for targets of 1 or -1."""
    return _above_zero(e, -y * (x1 - x2) + margin)


def hinge_embedding(e: Emitter[V], x: V, y: V, margin: float = 1.0) -> V:
    """X where the target is 1, max(0, margin - x) where it is -1; both where it is neither."""
    above = _above_zero(e, margin - x)
    return (e.call("where", e.call("not_equal", y, -1.0), x, 0.0)
            + e.call("where", e.call("not_equal", y, 1.0), above, 0.0))


def soft_margin(e: Emitter[V], x: V, y: V) -> V:
    """log(1 + e**(-y x))"""
    return softplus(e, -y * x, threshold=math.inf)


def cosine_embedding(e: Emitter[V], x1: V, x2: V, y: V, margin: float = 0.0) -> V:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1; rows (…, features)."""
    inner, *squares = (e.call("sum", product, axis=(-1,))
                       for product in (x1 * x2, x1 * x1, x2 * x2))
    first, second = (square + 1e-12 for square in squares)  # as in torch
    cosine = inner / e.call("sqrt", first * second)
    return e.call("where", e.call("equal", y, 1.0), 1 - cosine, _above_zero(e, cosine - margin))


def pairwise_distance(e: Emitter[V], x: V, y: V, p: float = 2.0, eps: float = 1e-6,
                      keepdims: bool = False) -> V:
    """The p-norm of ``x - y + eps`` along the last axis."""
    return p_norm(e, x - y + eps, p, (-1,), keepdims)


def triplet_margin(
    e: Emitter[V], anchor: V, positive: V, negative: V, distance: Callable[[V, V], V],
    margin: float = 1.0, swap: bool = False,
) -> V:
    """max(0, d(a, p) - d(a, n) + margin); ``swap`` (Balntas et al. 2016)."""
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = e.call("minimum", far, distance(positive, negative))
    return _above_zero(e, near - far + margin)


def _above_zero(e: Emitter[V], x: V) -> V:
    """max(x, 0) with slope 1 at 0, torch's ``clamp_min``."""
    return e.call("clip", x, a_min=0.0, a_max=math.inf)
