"""Activations, normalisation, and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr

# Of "Self-Normalizing Neural Networks" (Klambauer et al., 2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@converts("Relu6", inputs=1, outputs=("activations",))
def relu6(node: Node) -> Expr:
    return node.call(op.clip, node.input(0), a_min=0.0, a_max=6.0)


@converts("LeakyRelu", inputs=1, attributes=("alpha",), outputs=("activations",))
def leaky_relu(node: Node) -> Expr:
    return node.call(op.nn.leaky_relu, node.input(0), alpha=node.attr("alpha", float, 0.2))


def _exponential(node: Node, alpha: float, scale: float) -> Expr:
    """``scale * x`` above zero, ``scale * alpha * (exp(x) - 1)`` below."""
    x = node.input(0)
    zero = node.scalar_like(0, x)
    below = node.call(op.expm1, node.call(op.minimum, x, zero))
    below = node.call(op.multiply, below, node.scalar_like(alpha * scale, x))
    above = node.call(op.multiply, x, node.scalar_like(scale, x)) if scale != 1 else x
    return node.call(op.where, node.call(op.greater, x, zero), above, below)


@converts("Elu", inputs=1, outputs=("activations",))
def elu(node: Node) -> Expr:
    return _exponential(node, 1.0, 1.0)


@converts("Selu", inputs=1, outputs=("activations",))
def selu(node: Node) -> Expr:
    return _exponential(node, _SELU_ALPHA, _SELU_SCALE)


@converts("Softplus", inputs=1, outputs=("activations",))
def softplus(node: Node) -> Expr:
    """``log(1 + exp(x))`` without overflow: ``max(x, 0) + log1p(exp(-|x|))``."""
    x = node.input(0)
    small = node.call(op.exp, node.call(op.negative, node.call(op.abs, x)))
    return node.call(op.add, node.call(op.nn.relu, x), node.call(op.log1p, small))


@converts("Softsign", inputs=1, outputs=("activations",))
def softsign(node: Node) -> Expr:
    x = node.input(0)
    size = node.call(op.add, node.call(op.abs, x), node.scalar_like(1, x))
    return node.call(op.divide, x, size)


@converts("Softmax", inputs=1, outputs=("softmax",))
def softmax(node: Node) -> Expr:
    return node.call(op.nn.softmax, node.input(0), axis=-1)


@converts("LogSoftmax", inputs=1, outputs=("logsoftmax",))
def log_softmax(node: Node) -> Expr:
    return node.call(op.nn.log_softmax, node.input(0), axis=-1)


@converts("BiasAdd", inputs=2, attributes=("data_format",))
def bias_add(node: Node) -> Expr:
    axis = 1 if node.attr("data_format", str, "NHWC").startswith("NC") else node.rank() - 1
    return node.call(op.nn.bias_add, node.input(0), node.input(1), axis=axis)


@converts("BiasAddV1", inputs=2)
def bias_add_last(node: Node) -> Expr:
    return node.call(op.nn.bias_add, node.input(0), node.input(1), axis=node.rank() - 1)


@converts("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", inputs=5,
          attributes=("epsilon", "exponential_avg_factor", "data_format", "is_training"),
          outputs=("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2",
                   "reserve_space_3"))
def batch_norm(node: Node) -> Sequence[Expr]:
    """In training the statistics are those of the batch, the variance unbiased in the result."""
    axis = 1 if node.attr("data_format", str, "NHWC").startswith("NC") else node.rank() - 1
    epsilon = node.attr("epsilon", float, 1e-4)
    x, gamma, beta, mean, variance = node.inputs
    if not node.attr("is_training", bool, default=True):
        result = node.call(op.nn.batch_norm, *node.inputs, axis=axis, epsilon=epsilon)
        normed = node.fields(result, 3)[0]
        return _with_reserve(node, (normed, mean, variance, mean, variance))
    if node.attr("exponential_avg_factor", float, 1.0) != 1.0:
        raise node.unsupported("training with exponential_avg_factor other than 1")
    others = tuple(a for a in range(node.rank()) if a != axis)
    average = node.call(op.mean, x, axis=others, keepdims=True)
    spread = node.call(op.variance, x, average, axis=others)
    flat = node.call(op.squeeze, average, axis=others)
    result = node.call(op.nn.batch_norm, x, gamma, beta, flat, spread, axis=axis, epsilon=epsilon)
    count = math.prod(int(node.shape()[a]) for a in others)  # type: ignore[arg-type]
    unbiased = node.call(op.multiply, spread, node.scalar_like(count / max(count - 1, 1), spread))
    return _with_reserve(node, (node.fields(result, 3)[0], flat, unbiased, flat, spread))


def _with_reserve(node: Node, results: Sequence[Expr]) -> Sequence[Expr]:
    if node.op != "FusedBatchNormV3":
        return results
    return (*results, node.array(0, "float32"))


@converts("LRN", inputs=1, attributes=("depth_radius", "bias", "alpha", "beta"))
def local_response_norm(node: Node) -> Expr:
    """TensorFlow's alpha counts each element, weft's the whole window."""
    size = 2 * node.attr("depth_radius", int, 5) + 1
    return node.call(op.nn.lrn, node.input(0), size=size, axis=3,
                     bias=node.attr("bias", float, 1.0),
                     alpha=node.attr("alpha", float, 1.0) * size,
                     beta=node.attr("beta", float, 0.5))


@converts("SoftmaxCrossEntropyWithLogits", inputs=2, outputs=("loss", "backprop"))
def softmax_cross_entropy(node: Node) -> Sequence[Expr]:
    logits, labels = node.input(0), node.input(1)
    logs = node.call(op.nn.log_softmax, logits, axis=-1)
    total = node.call(op.sum, node.call(op.multiply, logs, labels), axis=(-1,))
    gradient = node.call(op.subtract, node.call(op.nn.softmax, logits, axis=-1), labels)
    return node.call(op.negative, total), gradient


@converts("SparseSoftmaxCrossEntropyWithLogits", inputs=2, attributes=("Tlabels",),
          outputs=("loss", "backprop"))
def sparse_softmax_cross_entropy(node: Node) -> Sequence[Expr]:
    logits, labels = node.input(0), node.input(1)
    one, zero = node.scalar_like(1, logits), node.scalar_like(0, logits)
    classes = node.shape()[-1]
    targets = node.call(op.one_hot, labels, one, zero, depth=classes, axis=-1)
    logs = node.call(op.nn.log_softmax, logits, axis=-1)
    total = node.call(op.sum, node.call(op.multiply, logs, targets), axis=(-1,))
    gradient = node.call(op.subtract, node.call(op.nn.softmax, logits, axis=-1), targets)
    return node.call(op.negative, total), gradient
