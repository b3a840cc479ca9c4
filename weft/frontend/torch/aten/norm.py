"""Converters of normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, axes_of, dtype_in, rank_of, shape_in, size_of
from weft.frontend.torch.registry import converts
from weft.ir import Constant, DType, Expr
from weft.op.composites import norms


@converts("native_layer_norm")
def native_layer_norm(node: Node, x: Expr, shape: Sequence[int], weight: Expr | None,
                      bias: Expr | None, epsilon: float) -> tuple[Expr, ...]:
    """The result, mean and 1 / deviation; the last two are computed only if they are used."""
    axes = tuple(range(rank_of(x) - len(shape), rank_of(x)))
    mean, rest = _statistics(node, x, axes, epsilon)
    return layer_norm(node, x, shape, weight, bias, epsilon), mean, rest


@converts("layer_norm")
def layer_norm(node: Node, x: Expr, shape: Sequence[int], weight: Expr | None,
               bias: Expr | None, epsilon: float, *_options: Any) -> Expr:
    """Flatten several normalised axes to one, because ``nn.layer_norm`` normalises one axis."""
    own, count = shape_in(x), math.prod(shape)
    if epsilon < 0 or not size_of(x):
        return _spelled_out(node, x, axes_of(range(-len(shape), 0), rank_of(x)), weight, bias,
                            epsilon)
    flat = node.reshape(x, (*own[: rank_of(x) - len(shape)], count))
    one, zero = (Constant(arrays.full((count,), v, dtype_in(x).numpy), span=node.span)
                 for v in (1, 0))
    weight = one if weight is None else node.reshape(weight, (count,))
    bias = zero if bias is None else node.reshape(bias, (count,))
    result = node.call(op.nn.layer_norm, flat, weight, bias, axis=rank_of(flat) - 1,
                       epsilon=float(epsilon))
    return node.reshape(result, own)


def _spelled_out(node: Node, x: Expr, axes: tuple[int, ...], weight: Expr | None,
                 bias: Expr | None, epsilon: float) -> Expr:
    """Layer norm as plain arithmetic, for any epsilon and size."""
    dtype = dtype_in(x)
    wide: DType | str = "float32" if dtype.bits < 32 else dtype
    x = node.cast(x, wide)
    mean, rest = _statistics(node, x, axes, epsilon)
    result = node.call(op.multiply, node.call(op.subtract, x, mean), rest)
    if weight is not None:
        result = node.call(op.multiply, result, node.cast(weight, wide))
    if bias is not None:
        result = node.call(op.add, result, node.cast(bias, wide))
    return node.cast(result, dtype)


def _statistics(node: Node, x: Expr, axes: tuple[int, ...], epsilon: float
                ) -> tuple[Expr, Expr]:
    """The mean and 1 / deviation over ``axes``, which are kept with size 1."""
    mean, _, variance = node.composed(norms.moments, x, axes)
    return mean, node.call(op.rsqrt, node.call(op.add, variance, node.scalar_like(epsilon, x)))


@converts("native_group_norm")
def native_group_norm(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, _n: int,
                      _c: int, _hw: int, groups: int, epsilon: float) -> tuple[Expr, ...]:
    """The result, and mean and 1 / deviation of each group, (N, groups)."""
    own = shape_in(x)
    grouped = node.reshape(x, (own[0], groups, math.prod(own[1:]) // groups))
    moments = _statistics(node, grouped, (2,), epsilon)
    return (group_norm(node, x, groups, weight, bias, epsilon),
            *(node.reshape(m, (own[0], groups)) for m in moments))


@converts("group_norm")
def group_norm(node: Node, x: Expr, groups: int, weight: Expr | None, bias: Expr | None,
               epsilon: float, *_options: Any) -> Expr:
    if epsilon < 0 or not size_of(x):
        own = shape_in(x)
        grouped = node.reshape(x, (own[0], groups, math.prod(own[1:]) // groups))
        plain = node.reshape(_spelled_out(node, grouped, (2,), None, None, epsilon), own)
        scale, shift = (node.reshape(v, (own[1], *(1,) * (len(own) - 2)))
                        for v in _affine(node, x, weight, bias))
        return node.call(op.add, node.call(op.multiply, plain, scale), shift)
    return node.call(op.nn.group_norm, x, *_affine(node, x, weight, bias), axis=1,
                     num_groups=groups, epsilon=float(epsilon))


@converts("instance_norm")
def instance_norm(node: Node, x: Expr, weight: Expr | None, bias: Expr | None,
                  _mean: Expr | None, _variance: Expr | None, by_input: bool, _momentum: float,
                  epsilon: float, *_options: Any) -> Expr:
    if not by_input:
        raise node.unsupported("running statistics", help="use batch_norm")
    return node.call(op.nn.instance_norm, x, *_affine(node, x, weight, bias), axis=1,
                     epsilon=float(epsilon))


def _affine(node: Node, x: Expr, weight: Expr | None, bias: Expr | None) -> tuple[Expr, Expr]:
    """Scale and shift of each channel; ones and zeros if missing."""
    one, zero = (Constant(arrays.full((shape_in(x)[1],), v, dtype_in(x).numpy), span=node.span)
                 for v in (1, 0))
    return (one if weight is None else weight), (zero if bias is None else bias)


@converts("rms_norm", "_fused_rms_norm")
def rms_norm(node: Node, x: Expr, shape: Sequence[int], weight: Expr | None,
             epsilon: float | None) -> Expr | tuple[Expr, ...]:
    """Divide by the root mean square; 16-bit floats are computed in float32."""
    axes = axes_of(range(-len(shape), 0), rank_of(x))
    dtype = dtype_in(x)
    wide = node.cast(x, "float32") if dtype.bits < 32 else x
    least = float(np.finfo(dtype_in(wide).numpy).eps) if epsilon is None else float(epsilon)
    square = node.call(op.mean, node.call(op.multiply, wide, wide), axis=axes, keepdims=True)
    rest = node.call(op.rsqrt, node.call(op.add, square, node.scalar_like(least, wide)))
    result = node.cast(node.call(op.multiply, wide, rest), dtype)
    if weight is not None:
        result = node.call(op.multiply, result, weight)
    return (result, rest) if "fused" in node.op else result
