"""Converters of activation functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import ConvertFunction, converts, register
from weft.frontend.onnx.reshaping import flatten_at, reshape_to
from weft.ir import Expr, Op
from weft.op.composites import activations
from weft.op.composites.emitter import Emitter, V


@converts("LeakyRelu", attributes=("alpha",))
def leaky_relu(node: Node) -> Expr:
    return node.call(op.nn.leaky_relu, node.input(0), alpha=node.attrs.number("alpha", 0.01))


@converts("PRelu")
def prelu(node: Node) -> Expr:
    return node.composed(activations.prelu, node.input(0), _slope(node))


def _slope(node: Node) -> Expr:
    """Return the slope, reshaped if it is a vector of one slope per channel (as before opset 7)."""
    shape, own = node.shape(), node.shape(1)
    if len(own) == 1 and len(shape) > 2 and own[0] not in (1, shape[-1]) and own[0] == shape[1]:
        return reshape_to(node, node.input(1), (own[0], *(1,) * (len(shape) - 2)))
    return node.input(1)


def _with_numbers(composite: Callable[..., Any], defaults: Mapping[str, float]
                  ) -> ConvertFunction:
    """The converter by a composite whose parameters are float attributes, in their order."""
    def convert(node: Node) -> Expr:
        numbers = [node.attrs.number(name, value) for name, value in defaults.items()]
        return node.composed(composite, node.input(0), *numbers)

    return convert


def _hardswish(e: Emitter[V], x: V) -> V:
    """ONNX's HardSwish: the hard sigmoid with the slope 1/6 as a 32-bit number."""
    return x * activations.clipped_line(e, x, float(np.float32(1 / 6)), 0.5)


_softplus = functools.partial(activations.softplus, threshold=math.inf)
# Operator, first opset, composite, defaults of its attributes in the order of the parameters.
_COMPOSITES: tuple[tuple[str, int, Callable[..., Any], dict[str, float]], ...] = (
    ("Elu", 1, activations.elu, {"alpha": 1.0}),
    ("Selu", 1, activations.selu,
     {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    ("HardSigmoid", 1, activations.clipped_line, {"alpha": 0.2, "beta": 0.5}),
    ("HardSwish", 14, _hardswish, {}),
    ("Mish", 18, activations.mish, {}),
    ("Softplus", 1, _softplus, {}),
    ("Softsign", 1, activations.softsign, {}),
    ("ThresholdedRelu", 10, activations.threshold, {"alpha": 1.0}),
)
for _name, _since, _composite, _defaults in _COMPOSITES:
    register(_name, _with_numbers(_composite, _defaults), since=_since, attributes=_defaults)


@converts("Celu", since=12, attributes=("alpha",))
def celu(node: Node) -> Expr:
    alpha = node.attrs.number("alpha", 1.0)
    if alpha == 0:
        raise node.fail("attribute 'alpha' is 0", expected="another number")
    return node.composed(activations.celu, node.input(0), alpha)


@converts("Shrink", since=9, attributes=("bias", "lambd"))
def shrink(node: Node) -> Expr:
    """Integers are computed in float32."""
    x, dtype = node.input(0), node.dtype()
    numbers = node.attrs.number("lambd", 0.5), node.attrs.number("bias", 0.0)
    if dtype.is_float:
        return node.composed(activations.shrink, x, *numbers)
    wide = node.composed(activations.shrink, node.call(op.cast, x, dtype="float32"), *numbers)
    return node.call(op.cast, wide, dtype=dtype.name)


@converts("Gelu", since=20, attributes=("approximate",))
def gelu(node: Node) -> Expr:
    kind = node.attrs.one_of("approximate", "none", ("none", "tanh"))
    return node.composed(activations.gelu, node.input(0), kind)


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
