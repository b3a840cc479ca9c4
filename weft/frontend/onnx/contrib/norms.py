"""ONNX Runtime's normalisations: of sums with a residual, of embeddings, RMS and group norm."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.ops.norm import standardized
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir import Constant, Expr, float32
from weft.support.errors import UnsupportedModelError

_SMALLEST = 1e-12  # ONNX Runtime's default epsilon of layer norms with a residual


@converts(contrib("SkipLayerNormalization"), attributes=("epsilon",), outputs=4)
def skip_layer_normalization(node: Node) -> Sequence[Expr]:
    """Layer norm of input + skip + bias; the last output is the sum."""
    total = _sum_with_residual(node, 4)
    gamma, epsilon = node.input(2), node.attrs.number("epsilon", _SMALLEST)
    return layer_norm(node, total, gamma, node.input(3) if node.has_input(3) else None,
                      epsilon), *_statistics(node, total, epsilon), total


@converts(contrib("SkipSimplifiedLayerNormalization"), attributes=("epsilon",), outputs=4)
def skip_simplified_layer_normalization(node: Node) -> Sequence[Expr]:
    """RMS norm of input + skip + bias; the last output is the sum."""
    total = _sum_with_residual(node, 3)
    epsilon, axes = node.attrs.number("epsilon", _SMALLEST), (tensor_type(total).ndim - 1,)
    mean = node.call(op.mean, cast_to(node, total, float32), axis=axes, keepdims=True)
    inverse = _inverse_rms(node, total, axes, epsilon)
    return rms_norm(node, total, node.input(2), epsilon), mean, inverse, total


@converts("SimplifiedLayerNormalization", attributes=("axis", "epsilon", "stash_type"), outputs=2)
@converts(contrib("SimplifiedLayerNormalization"), attributes=("axis", "epsilon", "stash_type"),
          outputs=2)
def simplified_layer_normalization(node: Node) -> Sequence[Expr]:
    """RMS norm over the axes from ``axis`` on; the optional output is the inverse RMS."""
    x, rank = node.input(0), node.rank()
    axis = node.axis(node.attrs.integer("axis", -1), rank)
    epsilon = node.attrs.number("epsilon", 1e-5)
    inverse = _inverse_rms(node, x, range(axis, rank), epsilon)
    if axis == rank - 1 and node.rank(1) == 1:
        return rms_norm(node, x, node.input(1), epsilon), inverse
    scaled = node.call(op.multiply, cast_to(node, x, float32), inverse)
    scaled = cast_to(node, scaled, tensor_type(x).dtype)
    return node.call(op.multiply, scaled, node.input(1)), inverse


@converts(contrib("EmbedLayerNormalization"), attributes=("epsilon", "mask_index_type"), outputs=3)
def embed_layer_normalization(node: Node) -> Sequence[Expr]:
    """Layer norm of the sum of word, position and segment embeddings.

    The optional outputs are the number of tokens that the mask keeps in each row, and the sum.
    """
    ids = node.input(0)
    batch, length = node.shape()
    total = node.call(op.take, node.input(2), ids, axis=0, mode="clip")
    if node.has_input(8):
        rows = node.call(op.take, node.input(3), node.input(8), axis=0, mode="clip")
    else:
        rows = node.call(op.strided_slice, node.input(3), begin=(0,), end=(length,),
                           strides=(1,), axes=(0,))
    total = node.call(op.add, total, rows)
    if node.has_input(1) and node.has_input(4):
        segments = node.call(op.take, node.input(4), node.input(1), axis=0, mode="clip")
        total = node.call(op.add, total, segments)
    result = layer_norm(node, total, node.input(5), node.input(6),
                        node.attrs.number("epsilon", _SMALLEST))
    if node.has_input(7):
        kept = node.call(op.equal, node.input(7), node.constant(1, "int32"))
        count = node.call(op.sum, node.call(op.cast, kept, dtype="int32"), axis=(1,))
    else:
        count = node.call(op.zeros, shape=(batch,), dtype="int32")
    return result, count, total


@converts(contrib("GroupNorm"), attributes=("activation", "channels_last", "epsilon", "groups"))
def group_norm(node: Node) -> Expr:
    return _group_norm(node, node.input(0))


@converts(contrib("SkipGroupNorm"), attributes=("activation", "channels_last", "epsilon", "groups"),
          outputs=2)
def skip_group_norm(node: Node) -> Sequence[Expr]:
    """Group norm of x + skip + bias; the second output is the sum."""
    if not node.attrs.flag("channels_last", True):
        raise UnsupportedModelError("SkipGroupNorm with channels first", where=node.span)
    skip = node.input(3)
    if node.rank(3) == 2:
        batch, channels = node.shape(3)
        skip = reshape_to(node, skip, (batch, 1, 1, channels))
    total = node.call(op.add, node.input(0), skip)
    if node.has_input(4):
        total = node.call(op.add, total, node.input(4))
    return _group_norm(node, total), total


def _group_norm(node: Node, x: Expr) -> Expr:
    """Group norm of NHWC or NCHW data, then SiLU if attribute ``activation`` is 1."""
    dtype, last = tensor_type(x).dtype, node.attrs.flag("channels_last", True)
    images = node.call(op.transpose, x, axes=(0, 3, 1, 2)) if last else x
    images = cast_to(node, images, float32)
    gamma, beta = (cast_to(node, node.input(i), float32) for i in (1, 2))
    result = node.call(op.nn.group_norm, images, gamma, beta,
                       num_groups=node.attrs.integer("groups", 1), axis=1,
                       epsilon=node.attrs.number("epsilon", 1e-5))
    if node.attrs.integer("activation", 0):
        result = node.call(op.multiply, result, node.call(op.sigmoid, result))
    result = cast_to(node, result, dtype)
    return node.call(op.transpose, result, axes=(0, 2, 3, 1)) if last else result


def layer_norm(node: Node, x: Expr, gamma: Expr, beta: Expr | None, epsilon: float) -> Expr:
    """``nn.layer_norm`` over the last axis; ``beta`` is optional."""
    given = tensor_type(gamma)
    beta = beta or Constant(arrays.zeros(given.concrete_shape, given.dtype.numpy), span=node.span)
    return node.call(op.nn.layer_norm, x, gamma, beta, axis=tensor_type(x).ndim - 1,
                     epsilon=epsilon)


def rms_norm(node: Node, x: Expr, weight: Expr, epsilon: float) -> Expr:
    """``nn.rms_norm`` over the last axis."""
    return node.call(op.nn.rms_norm, x, weight, axis=tensor_type(x).ndim - 1, epsilon=epsilon)


def _sum_with_residual(node: Node, bias: int) -> Expr:
    """The input + skip, plus the bias in input ``bias`` if it is given."""
    total = node.call(op.add, node.input(0), node.input(1))
    return node.call(op.add, total, node.input(bias)) if node.has_input(bias) else total


def _statistics(node: Node, x: Expr, epsilon: float) -> tuple[Expr, Expr]:
    """Mean and inverse standard deviation over the last axis, float32."""
    wide = cast_to(node, x, float32)
    standard = standardized(node, wide, (tensor_type(x).ndim - 1,), epsilon)
    one = node.scalar_like(1, standard.deviation)
    return standard.mean, node.call(op.divide, one, standard.deviation)


def _inverse_rms(node: Node, x: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    wide = cast_to(node, x, float32)
    square = node.call(op.mean, node.call(op.multiply, wide, wide), axis=tuple(axes), keepdims=True)
    return node.call(op.rsqrt, node.call(op.add, square, node.scalar_like(epsilon, square)))
