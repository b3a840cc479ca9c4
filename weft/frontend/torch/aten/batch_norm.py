"""Converters of batch normalisation, with running statistics or those of the batch."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr


@converts("_native_batch_norm_legit_no_training")
def batch_norm(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr,
               variance: Expr, _momentum: float, epsilon: float) -> tuple[Expr, ...]:
    """Normalise by the running statistics; the results for the backward pass are blank."""
    return (_by_stored(node, x, weight, bias, mean, variance, epsilon),
            *(_blank(node, i) for i in range(1, len(node.result))))


@converts("batch_norm", "cudnn_batch_norm", "native_batch_norm", "_batch_norm_no_update")
def batch_norm_of_any_mode(node: Node, x: Expr, weight: Expr | None, bias: Expr | None,
                           mean: Expr | None, variance: Expr | None, *options: Any
                           ) -> Expr | tuple[Expr, ...]:
    inference = "no_update" in node.op or not options[0]
    if not inference or mean is None or variance is None:
        raise node.unsupported("training mode", help="export the model in eval mode: model.eval()")
    momentum, epsilon = options[:2] if "no_update" in node.op else options[1:3]
    if node.op.startswith("aten.batch_norm"):
        return _by_stored(node, x, weight, bias, mean, variance, epsilon)
    return batch_norm(node, x, weight, bias, mean, variance, momentum, epsilon)


def _by_stored(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr,
               variance: Expr, epsilon: float) -> Expr:
    weight = _vector(node, 1, mean) if weight is None else weight
    bias = _vector(node, 0, mean) if bias is None else bias
    operands = [_wide(node, v) for v in (x, weight, bias, mean, variance)]
    result = node.call(op.nn.batch_norm, *operands, axis=1, epsilon=float(epsilon))
    return node.cast(node.field(result, 0), dtype_in(x))


def _vector(node: Node, value: float, like: Expr) -> Expr:
    return Constant(arrays.full(shape_in(like), value, dtype_in(like).numpy), span=node.span)


@converts("_native_batch_norm_legit.no_stats")
def norm_by_batch(node: Node, x: Expr, weight: Expr | None, bias: Expr | None, _train: bool,
                  momentum: float, epsilon: float) -> tuple[Expr, ...]:
    """Normalise by batch statistics; also returns mean and 1 / deviation of each channel."""
    return _trained(node, x, weight, bias, None, None, momentum, epsilon)[:3]


@converts("_native_batch_norm_legit_functional")
def batch_norm_functional(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr,
    train: bool, momentum: float, epsilon: float,
) -> tuple[Expr, ...]:
    """The result, the saved mean and 1 / deviation, and the new running mean and variance."""
    if not train:
        return (_by_stored(node, x, weight, bias, mean, variance, epsilon),
                *(_blank(node, i) for i in (1, 2)), mean, variance)
    return _trained(node, x, weight, bias, mean, variance, momentum, epsilon)


@converts("_batch_norm_with_update_functional")
def batch_norm_with_update(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr,
    momentum: float, epsilon: float,
) -> tuple[Expr, ...]:
    """Like ``batch_norm_functional`` in training, with an empty reserve before the statistics."""
    results = _trained(node, x, weight, bias, mean, variance, momentum, epsilon)
    return *results[:3], _blank(node, 3), *results[3:]


def _trained(
    node: Node, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr | None,
    variance: Expr | None, momentum: float, epsilon: float,
) -> tuple[Expr, ...]:
    """The result, mean and 1 / deviation of each channel, and the new running averages."""
    wide = _wide(node, x)
    blank = node.constant(arrays.zeros(shape_in(x)[1]), dtype_in(wide))
    operands = [blank if v is None else node.cast(v, dtype_in(wide))
                for v in (weight, bias, mean, variance)]
    found = node.call(op.nn.batch_norm_training, wide, *operands, axis=1, epsilon=float(epsilon),
                      scale=weight is not None, center=bias is not None,
                      momentum=float(momentum))
    rest = _inverse_deviation(node, node.field(found, 2), epsilon)
    saved = (node.cast(node.field(found, 1), node.dtype(1)), node.cast(rest, node.dtype(2)))
    moved = (node.cast(node.field(found, i), dtype_in(old))
             for i, old in ((3, mean), (4, variance)) if old is not None)
    return node.cast(node.field(found, 0), dtype_in(x)), *saved, *moved


@converts("native_batch_norm_backward", "batch_norm_backward")
def batch_norm_backward(
    node: Node, grad: Expr, x: Expr, weight: Expr | None, running_mean: Expr | None,
    running_variance: Expr | None, mean: Expr | None, rest: Expr | None, train: bool,
    epsilon: float, *_wanted: Any,
) -> tuple[Expr, ...]:
    """The gradients of data, weight and bias.

    With ``g`` the gradient of the normalised data ``n``, that of the data is
    ``(g - mean(g) - n * mean(g * n)) / deviation``, and ``g / deviation`` for running statistics.
    """
    wide, wide_grad = _wide(node, x), _wide(node, grad)
    if not train:
        mean, rest = _running(node, running_mean, running_variance, epsilon)
    elif mean is None or rest is None:
        raise node.unsupported("the statistics of the batch are missing")
    scale = _per_channel(node, x, _wide(node, rest))
    centred = node.call(op.subtract, wide, _per_channel(node, x, _wide(node, mean)))
    normal = node.call(op.multiply, centred, scale)
    axes, count = _axes(x), _count(x)
    for_bias = node.call(op.sum, wide_grad, axis=axes, keepdims=True)
    for_weight = node.call(op.sum, node.call(op.multiply, wide_grad, normal), axis=axes,
                           keepdims=True)
    for_x = wide_grad
    if train:
        share = node.scalar_like(1 / max(count, 1), wide)
        drift = node.call(op.add, for_bias, node.call(op.multiply, normal, for_weight))
        for_x = node.call(op.subtract, wide_grad, node.call(op.multiply, drift, share))
    if weight is not None:
        scale = node.call(op.multiply, scale, _per_channel(node, x, _wide(node, weight)))
    for_x = node.cast(node.call(op.multiply, for_x, scale), dtype_in(x))
    return for_x, *(_flat(node, g, weight, x) for g in (for_weight, for_bias))


def _running(node: Node, mean: Expr | None, variance: Expr | None, epsilon: float
             ) -> tuple[Expr, Expr]:
    """The running mean, and 1 / deviation from the running variance."""
    if mean is None or variance is None:
        raise node.unsupported("the running statistics are missing")
    return mean, _inverse_deviation(node, _wide(node, variance), epsilon)


def _flat(node: Node, grad: Expr, weight: Expr | None, x: Expr) -> Expr:
    dtype = dtype_in(x) if weight is None else dtype_in(weight)
    return node.cast(node.reshape(grad, (shape_in(x)[1],)), dtype)


def _axes(x: Expr) -> tuple[int, ...]:
    """All axes except the channel axis."""
    return (0, *range(2, rank_of(x)))


def _count(x: Expr) -> int:
    return math.prod(shape_in(x)[a] for a in _axes(x))


def _wide(node: Node, x: Expr) -> Expr:
    """Cast 16-bit floats to float32 for the computation."""
    return node.cast(x, "float32") if dtype_in(x).bits < 32 else x


def _per_channel(node: Node, x: Expr, values: Expr) -> Expr:
    return node.reshape(values, (1, shape_in(x)[1], *(1,) * (rank_of(x) - 2)))


def _inverse_deviation(node: Node, variance: Expr, epsilon: float) -> Expr:
    return node.call(op.rsqrt, node.call(op.add, variance, node.scalar_like(epsilon, variance)))


def _blank(node: Node, index: int) -> Expr:
    """Zeros for a result that torch leaves undefined; a dynamic size becomes 0."""
    shape = tuple(n if isinstance(n, int) else 0 for n in node.result[index].shape)
    return Constant(arrays.zeros(shape, node.dtype(index).numpy), span=node.span)
