"""Converters of activation functions and softmax."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op


@converts("relu")
def relu(node: Node, x: Expr) -> Expr:
    if dtype_in(x).is_float:
        return node.call(op.nn.relu, x)
    return node.call(op.maximum, x, node.scalar_like(0, x))


@converts("leaky_relu")
def leaky_relu(node: Node, x: Expr, slope: float) -> Expr:
    return node.call(op.nn.leaky_relu, x, alpha=float(slope))


@converts("elu")
def elu(node: Node, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """The product of scale and (x where positive, else alpha * (e**(input_scale * x) - 1))."""
    zero = node.scalar_like(0, x)
    # The exponential of min(x, 0) cannot overflow in the branch that is not selected.
    low = node.call(op.where, node.call(op.greater, x, zero), zero, x)
    if input_scale != 1:
        low = node.call(op.multiply, low, node.scalar_like(input_scale, x))
    grown = node.call(op.expm1, low)
    below = node.call(op.multiply, grown, node.scalar_like(alpha, x))
    result = node.call(op.where, node.call(op.greater, x, zero), x, below)
    return result if scale == 1 else node.call(op.multiply, result, node.scalar_like(scale, x))


@converts("silu")
def silu(node: Node, x: Expr) -> Expr:
    return node.call(op.multiply, x, node.call(op.sigmoid, x))


@converts("hardsigmoid")
def hardsigmoid(node: Node, x: Expr) -> Expr:
    return _hard_gate(node, x)


@converts("hardswish")
def hardswish(node: Node, x: Expr) -> Expr:
    return node.call(op.multiply, x, _hard_gate(node, x))


def _hard_gate(node: Node, x: Expr) -> Expr:
    """clip(x + 3, 0, 6) / 6"""
    raised = node.call(op.add, x, node.scalar_like(3, x))
    clipped = node.call(op.clip, raised, a_min=0.0, a_max=6.0, flat_ends=True)
    return node.call(op.multiply, clipped, node.scalar_like(1 / 6, x))


@converts("gelu")
def gelu(node: Node, x: Expr, approximate: str) -> Expr:
    gate = _tanh_gate(node, x) if approximate == "tanh" else _erf_gate(node, x)
    one_plus = node.call(op.add, gate, node.scalar_like(1, x))
    half = node.call(op.multiply, x, node.scalar_like(0.5, x))
    return node.call(op.multiply, half, one_plus)


def _erf_gate(node: Node, x: Expr) -> Expr:
    return node.call(op.erf, node.call(op.multiply, x, node.scalar_like(1 / math.sqrt(2), x)))


def _tanh_gate(node: Node, x: Expr) -> Expr:
    """tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))"""
    square = node.call(op.multiply, x, x)
    factor = node.call(op.add, node.call(op.multiply, square, node.scalar_like(0.044715, x)),
                       node.scalar_like(1, x))
    scaled = node.call(op.multiply, x, node.scalar_like(math.sqrt(2 / math.pi), x))
    return node.call(op.tanh, node.call(op.multiply, scaled, factor))


@converts("softplus")
def softplus(node: Node, x: Expr, beta: float, threshold: float) -> Expr:
    """log(1 + e**(beta x)) / beta, and x itself where beta x exceeds the threshold."""
    scaled = node.call(op.multiply, x, node.scalar_like(beta, x))
    decayed = node.call(op.exp, node.call(op.negative, node.call(op.abs, scaled)))
    rest = node.call(op.log1p, decayed)  # log(1 + decayed) would lose precision
    total = node.call(op.add, node.call(op.nn.relu, scaled), rest)
    soft = node.call(op.divide, total, node.scalar_like(beta, x))
    is_large = node.call(op.greater, scaled, node.scalar_like(threshold, x))
    return node.call(op.where, is_large, x, soft)


@converts("prelu", "_prelu_kernel")
def prelu(node: Node, x: Expr, slope: Expr) -> Expr:
    """``slope`` has one element, or one for each channel."""
    if rank_of(slope) == 1 and rank_of(x) > 2:
        slope = node.call(op.expand_dims, slope, axis=1, num_newaxis=rank_of(x) - 2)
    negative = node.call(op.less, x, node.scalar_like(0, x))
    return node.call(op.where, negative, node.call(op.multiply, x, slope), x)


@converts("_softmax", "softmax.int")
def softmax(node: Node, x: Expr, axis: int, *_options: Any) -> Expr:
    return _along(node, op.nn.softmax, x, axis)


@converts("_log_softmax", "log_softmax.int")
def log_softmax(node: Node, x: Expr, axis: int, *_options: Any) -> Expr:
    return _along(node, op.nn.log_softmax, x, axis)


def _along(node: Node, operator: Op, x: Expr, axis: int) -> Expr:
    """Apply ``operator`` along ``axis``; a scalar counts as rank 1."""
    shape = shape_in(x)
    line = node.reshape(node.cast(x, node.dtype()), shape or (1,))
    return node.reshape(node.call(operator, line, axis=axis_of(axis, len(shape))), shape)


@converts("rrelu_with_noise_functional")
def rrelu(node: Node, x: Expr, noise: Expr, low: float, high: float, train: bool,
          *_generator: Any) -> tuple[Expr, Expr]:
    """Leaky ReLU with the mean slope, as at inference; the noise is returned unchanged."""
    if train:
        raise node.unsupported("random slopes of training mode")
    return node.call(op.nn.leaky_relu, x, alpha=(float(low) + float(high)) / 2), noise


@converts("rrelu_with_noise_backward")
def rrelu_backward(node: Node, grad: Expr, x: Expr, noise: Expr, low: float, high: float,
                   train: bool, _of_result: bool) -> Expr:
    """In training, ``noise`` holds the slopes that the forward pass used."""
    if train and high - low > 1e-6:
        return node.call(op.multiply, grad, noise)
    below = node.call(op.multiply, grad, node.scalar_like((low + high) / 2, grad))
    is_above = node.call(op.greater, x, node.scalar_like(0, x))
    return node.call(op.where, is_above, grad, below)
