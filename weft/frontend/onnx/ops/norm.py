"""Converters of normalisations and dropout."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Constant, Expr
from weft.op.composites import norms
from weft.support.dataclass import dataclass


@converts(
    "BatchNormalization",
    attributes=("epsilon", "momentum"),
    only={"spatial": (1,), "training_mode": (0,)},
)
def batch_normalization(node: Node) -> Expr:
    return _normalized_by_given(node)


def _normalized_by_given(node: Node) -> Expr:
    inputs = [node.input(i) for i in range(5)]
    epsilon = node.attrs.number("epsilon", 1e-5)
    return node.field(node.call(op.nn.batch_norm, *inputs, axis=1, epsilon=epsilon), 0)


@converts(
    "BatchNormalization",
    since=14,
    attributes=("epsilon", "momentum", "training_mode"),
    outputs=3,
)
def batch_normalization_or_training(node: Node) -> Sequence[Expr]:
    """Normalise; in training mode by batch statistics, which also update the running ones."""
    if not node.attrs.flag("training_mode"):
        return (_normalized_by_given(node),)
    # The momentum of ONNX weighs the old averages, and its variance is the biased one.
    result = node.call(
        op.nn.batch_norm_training, *(node.input(i) for i in range(5)), axis=1,
        epsilon=node.attrs.number("epsilon", 1e-5), unbiased=False,
        momentum=1 - node.attrs.number("momentum", 0.9))
    return tuple(node.field(result, i) for i in (0, 3, 4))


@converts("LRN", attributes=("alpha", "beta", "bias", "size"))
def lrn(node: Node) -> Expr:
    """Convert LRN; a window wider than all channels is shrunk, with ``alpha`` scaled to match."""
    size, alpha = node.attrs.integer("size", 0), node.attrs.number("alpha", 1e-4)
    if size < 1 or node.rank() < 2:
        raise node.fail("attribute 'size' is not positive, or there are no channels")
    channels = node.shape()[1]
    if isinstance(channels, int) and size > 2 * channels + 1:
        size, alpha = 2 * channels + 1, alpha * (2 * channels + 1) / size
    return node.call(
        op.nn.lrn,
        node.input(0),
        size=size,
        axis=1,
        bias=node.attrs.number("bias", 1.0),
        alpha=alpha,
        beta=node.attrs.number("beta", 0.75),
    )


@converts(
    "LayerNormalization",
    since=17,
    attributes=("axis", "epsilon"),
    only={"stash_type": (1,)},
    outputs=3,
)
def layer_normalization(node: Node) -> Sequence[Expr]:
    """Normalise over the axes from ``axis`` on; ``nn.layer_norm`` is used for the last axis only.

    The optional outputs are the mean and the inverse standard deviation.
    """
    x, rank = node.input(0), node.rank()
    axis = node.axis(node.attrs.integer("axis", -1), rank)
    epsilon = node.attrs.number("epsilon", 1e-5)
    scale = node.input(1)
    if axis == rank - 1 and node.rank(1) == 1 and node.outputs_read <= 1:
        bias = node.input(2) if node.has_input(2) else _zeros_like(node, scale)
        return (node.call(op.nn.layer_norm, x, scale, bias, axis=axis, epsilon=epsilon),)
    standard = standardized(node, x, range(axis, rank), epsilon)
    scaled = node.call(op.multiply, standard.value, scale)
    result = node.call(op.add, scaled, node.input(2)) if node.has_input(2) else scaled
    if node.outputs_read <= 1:
        return (result,)
    one = node.scalar_like(1, standard.deviation)
    return result, standard.mean, node.call(op.divide, one, standard.deviation)


def _zeros_like(node: Node, vector: Expr) -> Expr:
    type_ = tensor_type(vector)
    return Constant(arrays.zeros(type_.concrete_shape, type_.dtype.numpy), span=node.span)


@dataclass(frozen=True)
class Standardized:
    """``value`` has mean 0 and variance 1; ``deviation`` is sqrt(variance + epsilon)."""

    value: Expr
    mean: Expr
    variance: Expr
    deviation: Expr


def standardized(node: Node, x: Expr, axes: Sequence[int], epsilon: float) -> Standardized:
    mean, centred, variance = node.composed(norms.moments, x, tuple(axes))
    spread = node.call(op.add, variance, node.scalar_like(epsilon, x))
    deviation = node.call(op.sqrt, spread)
    return Standardized(node.call(op.divide, centred, deviation), mean, variance, deviation)


@converts("InstanceNormalization", attributes=("epsilon",))
def instance_normalization(node: Node) -> Expr:
    epsilon = node.attrs.number("epsilon", 1e-5)
    return node.call(op.nn.instance_norm, *map(node.input, range(3)), axis=1, epsilon=epsilon)


@converts("MeanVarianceNormalization", since=9, attributes=("axes",))
def mean_variance_normalization(node: Node) -> Expr:
    """The centred data over its standard deviation, to which ONNX adds 1e-9.

    ONNX defines the variance as E[x²] - E[x]², which cancels where the mean is large: the mean
    square of the centred data is the same number, without the loss.
    """
    x, axes = node.input(0), node.attrs.integers("axes") or (0, 2, 3)
    _, centred, variance = node.composed(norms.moments, x, tuple(axes))
    deviation = node.call(op.sqrt, variance)
    return node.call(op.divide, centred,
                     node.call(op.add, deviation, node.scalar_like(1e-9, deviation)))


@converts("GroupNormalization", since=21, attributes=("epsilon", "num_groups"),
          only={"stash_type": (1,)})
def group_normalization(node: Node) -> Expr:
    """ONNX computes E[x²] - E[x]², which cancels where the mean is large; weft does not."""
    return node.call(op.nn.group_norm, *map(node.input, range(3)), axis=1,
                     num_groups=node.attrs.integer("num_groups", 1),
                     epsilon=node.attrs.number("epsilon", 1e-5))


@converts("LpNormalization", attributes=("axis", "p"))
def lp_normalization(node: Node) -> Expr:
    """Divide by the 1-norm or 2-norm along an axis; the result is zero where the norm is zero."""
    x = node.input(0)
    axis = node.axis(node.attrs.integer("axis", -1), node.rank())
    p = node.attrs.integer("p", 2)
    if p not in (1, 2):
        raise node.fail("attribute 'p' is neither 1 nor 2", got=str(p))
    norm = node.composed(norms.p_norm, x, p, (axis,), keepdims=True)
    zero, one = node.scalar_like(0, x), node.scalar_like(1, x)
    is_zero = node.call(op.equal, norm, zero)
    quotient = node.call(op.divide, x, node.call(op.where, is_zero, one, norm))
    return node.call(op.where, is_zero, zero, quotient)
