"""Activations, normalisation, and losses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr
from weft.op.composites import activations, losses

COMPOSITES: dict[str, Callable[..., Any]] = {
    "Elu": activations.elu, "Relu6": activations.relu6, "Selu": activations.selu,
    "Softplus": functools.partial(activations.softplus, threshold=math.inf),
    "Softsign": activations.softsign,
}


@converts(*COMPOSITES, inputs=1, outputs=("activations",))
def activation(node: Node) -> Expr:
    return node.composed(COMPOSITES[node.op], node.input(0))


@converts("LeakyRelu", inputs=1, attributes=("alpha",), outputs=("activations",))
def leaky_relu(node: Node) -> Expr:
    return node.call(op.nn.leaky_relu, node.input(0), alpha=node.attr("alpha", float, 0.2))


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
    return (*results, node.constant(0, "float32"))


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
    return _cross_entropy(node, node.input(0), node.input(1))


def _cross_entropy(node: Node, logits: Expr, shares: Expr) -> Sequence[Expr]:
    gradient = node.call(op.subtract, node.call(op.nn.softmax, logits, axis=-1), shares)
    return node.composed(losses.softmax_cross_entropy, logits, shares), gradient


@converts("SparseSoftmaxCrossEntropyWithLogits", inputs=2, attributes=("Tlabels",),
          outputs=("loss", "backprop"))
def sparse_softmax_cross_entropy(node: Node) -> Sequence[Expr]:
    logits, labels = node.input(0), node.input(1)
    one, zero = node.scalar_like(1, logits), node.scalar_like(0, logits)
    classes = node.shape()[-1]
    targets = node.call(op.one_hot, labels, one, zero, depth=classes, axis=-1)
    return _cross_entropy(node, logits, targets)
