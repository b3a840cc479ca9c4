"""Converters of activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import ConvertFunction, converts, register
from weft.ir import Expr, Op
from weft.op.composites import activations


@converts("relu")
def relu(node: Node, x: Expr) -> Expr:
    if dtype_in(x).is_float:
        return node.call(op.nn.relu, x)
    return node.call(op.maximum, x, node.scalar_like(0, x))


@converts("leaky_relu")
def leaky_relu(node: Node, x: Expr, slope: float) -> Expr:
    return node.call(op.nn.leaky_relu, x, alpha=float(slope))


# Composites that take the arguments of the operator in its order.
_COMPOSITES: dict[str, Callable[..., Any]] = {
    "elu": activations.elu,
    "gelu": activations.gelu,
    "hardsigmoid": activations.hardsigmoid,
    "hardswish": activations.hardswish,
    "silu": activations.silu,
    "softplus": activations.softplus,
}


def _composite(composite: Callable[..., Any]) -> ConvertFunction:
    def convert(node: Node, x: Expr, *numbers: Any) -> Expr:
        return node.composed(composite, x, *numbers)

    return convert


for _name, _function in _COMPOSITES.items():
    register(_name, _composite(_function))


@converts("prelu", "_prelu_kernel")
def prelu(node: Node, x: Expr, slope: Expr) -> Expr:
    """``slope`` has one element, or one for each channel."""
    if rank_of(slope) == 1 and rank_of(x) > 2:
        slope = node.call(op.expand_dims, slope, axis=1, num_newaxis=rank_of(x) - 2)
    return node.composed(activations.prelu, x, slope)


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
