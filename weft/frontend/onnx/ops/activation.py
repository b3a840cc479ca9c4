"""Converters of activation functions."""

from __future__ import annotations

import math

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import flatten_at, reshape_to
from weft.ir.expr import Expr
from weft.ir.op import Op

# HardSwish is defined by HardSigmoid with alpha = 1 / 6 (float32).
_SIXTH = float(np.float32(1 / 6))


@converts("LeakyRelu", attributes=("alpha",))
def leaky_relu(node: Node) -> Expr:
    return node.call(op.nn.leaky_relu, node.input(0), alpha=node.attrs.number("alpha", 0.01))


@converts("PRelu")
def prelu(node: Node) -> Expr:
    x, slope = node.input(0), _slope(node)
    negative = node.call(op.less, x, node.scalar_like(0, x))
    return node.call(op.where, negative, node.call(op.multiply, x, slope), x)


def _slope(node: Node) -> Expr:
    """Return the slope, reshaped if it is a vector of one slope per channel (as before opset 7)."""
    shape, own = node.shape(), node.shape(1)
    if len(own) == 1 and len(shape) > 2 and own[0] not in (1, shape[-1]) and own[0] == shape[1]:
        return reshape_to(node, node.input(1), (own[0], *(1,) * (len(shape) - 2)))
    return node.input(1)


@converts("Elu", attributes=("alpha",))
def elu(node: Node) -> Expr:
    """``x`` where positive, else alpha * (e**x - 1); see ``_exponential_below``."""
    return _exponential_below(node, node.input(0), node.attrs.number("alpha", 1.0))


def _exponential_below(node: Node, x: Expr, alpha: float) -> Expr:
    """``x`` where positive, else alpha * (e**x - 1), computed as expm1(min(x, 0)).

    The minimum avoids overflow of the unused result for large ``x``; as in torch, the slope at 0
    is that of the exponential.
    """
    positive = node.call(op.greater, x, node.scalar_like(0, x))
    below = node.call(op.expm1, _not_above_zero(node, x, positive))
    scaled = node.call(op.multiply, below, node.scalar_like(alpha, x))
    return node.call(op.where, positive, x, scaled)


def _not_above_zero(node: Node, x: Expr, positive: Expr) -> Expr:
    return node.call(op.where, positive, node.scalar_like(0, x), x)


@converts("Celu", since=12, attributes=("alpha",))
def celu(node: Node) -> Expr:
    """``x`` where positive, else alpha * (e**(x / alpha) - 1)."""
    x, alpha = node.input(0), node.attrs.number("alpha", 1.0)
    if alpha == 0:
        raise node.fail("attribute 'alpha' is 0", expected="another number")
    positive = node.call(op.greater, x, node.scalar_like(0, x))
    shrunk = node.call(op.divide, _not_above_zero(node, x, positive), node.scalar_like(alpha, x))
    below = node.call(op.multiply, node.call(op.expm1, shrunk), node.scalar_like(alpha, x))
    return node.call(op.add, node.call(op.nn.relu, x), below)


@converts("Selu", attributes=("alpha", "gamma"))
def selu(node: Node) -> Expr:
    """Scaled ELU: gamma * (x where positive, else alpha * (e**x - 1))."""
    x = node.input(0)
    alpha = node.attrs.number("alpha", 1.67326319217681884765625)
    scaled = _exponential_below(node, x, alpha)
    return node.call(op.multiply, scaled,
                     node.scalar_like(node.attrs.number("gamma", 1.05070102214813232421875), x))


@converts("Shrink", since=9, attributes=("bias", "lambd"))
def shrink(node: Node) -> Expr:
    """Shrink: x + bias below -lambd, x - bias above lambd, else 0."""
    x = node.input(0)
    bias, limit = node.attrs.number("bias", 0.0), node.attrs.number("lambd", 0.5)
    wide = x if node.dtype().is_float else node.call(op.cast, x, dtype="float32")
    low = node.call(op.less, wide, node.scalar_like(-limit, wide))
    high = node.call(op.greater, wide, node.scalar_like(limit, wide))
    up = node.call(op.add, wide, node.scalar_like(bias, wide))
    down = node.call(op.subtract, wide, node.scalar_like(bias, wide))
    inner = node.call(op.where, high, down, node.scalar_like(0, wide))
    result = node.call(op.where, low, up, inner)
    return result if node.dtype().is_float else node.call(op.cast, result, dtype=node.dtype().name)


@converts("HardSigmoid", attributes=("alpha", "beta"))
def hard_sigmoid(node: Node) -> Expr:
    return _hard_sigmoid(node, node.attrs.number("alpha", 0.2), node.attrs.number("beta", 0.5))


@converts("HardSwish", since=14)
def hard_swish(node: Node) -> Expr:
    return node.call(op.multiply, node.input(0), _hard_sigmoid(node, _SIXTH, 0.5))


def _hard_sigmoid(node: Node, alpha: float, beta: float) -> Expr:
    x = node.input(0)
    line = node.call(
        op.add, node.call(op.multiply, x, node.scalar_like(alpha, x)), node.scalar_like(beta, x)
    )
    return node.call(op.clip, line, a_min=0.0, a_max=1.0)


@converts("Softplus")
def softplus(node: Node) -> Expr:
    """log(1 + e**x) as max(x, 0) + log1p(e**-|x|), which neither overflows nor cancels."""
    x = node.input(0)
    decayed = node.call(op.exp, node.call(op.negative, node.call(op.abs, x)))
    rest = node.call(op.log1p, decayed)
    return node.call(op.add, node.call(op.nn.relu, x), rest)


@converts("Softsign")
def softsign(node: Node) -> Expr:
    """Compute x / (1 + |x|)."""
    x = node.input(0)
    below = node.call(op.add, node.call(op.abs, x), node.scalar_like(1, x))
    return node.call(op.divide, x, below)


@converts("ThresholdedRelu", since=10, attributes=("alpha",))
def thresholded_relu(node: Node) -> Expr:
    """``x`` where it is greater than alpha, else 0."""
    x = node.input(0)
    limit = node.scalar_like(node.attrs.number("alpha", 1.0), x)
    return node.call(op.where, node.call(op.greater, x, limit), x, node.scalar_like(0, x))


@converts("Gelu", since=20, attributes=("approximate",))
def gelu(node: Node) -> Expr:
    kind = node.attrs.one_of("approximate", "none", ("none", "tanh"))
    return gelu_tanh(node, node.input(0)) if kind == "tanh" else gelu_erf(node, node.input(0))


def gelu_erf(node: Node, x: Expr) -> Expr:
    """Compute x / 2 * (1 + erf(x / sqrt(2)))."""
    scaled = node.call(op.multiply, x, node.scalar_like(1 / math.sqrt(2), x))
    return _gated(node, x, node.call(op.erf, scaled))


def gelu_tanh(node: Node, x: Expr) -> Expr:
    """Compute x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    square = node.call(op.multiply, x, x)
    factor = node.call(
        op.add,
        node.call(op.multiply, square, node.scalar_like(0.044715, x)),
        node.scalar_like(1, x),
    )
    scaled = node.call(op.multiply, x, node.scalar_like(math.sqrt(2 / math.pi), x))
    return _gated(node, x, node.call(op.tanh, node.call(op.multiply, scaled, factor)))


def _gated(node: Node, x: Expr, gate: Expr) -> Expr:
    one_plus = node.call(op.add, gate, node.scalar_like(1, x))
    half = node.call(op.multiply, x, node.scalar_like(0.5, x))
    return node.call(op.multiply, half, one_plus)


@converts("Softmax", attributes=("axis",))
def softmax_flattened(node: Node) -> Expr:
    return _normalise_flattened(node, op.nn.softmax)


@converts("Softmax", since=13, attributes=("axis",))
def softmax(node: Node) -> Expr:
    return _normalise(node, op.nn.softmax)


@converts("LogSoftmax", attributes=("axis",))
def log_softmax_flattened(node: Node) -> Expr:
    return _normalise_flattened(node, op.nn.log_softmax)


@converts("LogSoftmax", since=13, attributes=("axis",))
def log_softmax(node: Node) -> Expr:
    return _normalise(node, op.nn.log_softmax)


def _normalise(node: Node, operator: Op) -> Expr:
    axis = node.axis(node.attrs.integer("axis", -1), node.rank())
    return node.call(operator, node.input(0), axis=axis)


def _normalise_flattened(node: Node, operator: Op) -> Expr:
    """Normalise over all axes from ``axis`` on, flattened, as defined before opset 13."""
    x, rank = node.input(0), node.rank()
    axis = node.axis(node.attrs.integer("axis", 1), rank)
    if axis == rank - 1:
        return node.call(operator, x, axis=axis)
    flat = node.call(operator, flatten_at(node, x, axis), axis=1)
    return reshape_to(node, flat, node.shape())
