"""Normalisation: batch norm at inference, layer norm, local response normalisation."""

from __future__ import annotations

import functools
import operator

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, all_of, const, if_then_else

MAX_WRITTEN_OUT = 9


def batch_norm(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    mean: te.Tensor,
    variance: te.Tensor,
    *,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon), times gamma (``scale``), plus beta (``center``)."""

    def element(*index: PrimExpr) -> PrimExpr:
        c = index[axis]
        deviation = te.sqrt(variance[c] + const(epsilon, variance.dtype))
        value = (x[index] - mean[c]) / deviation
        value = value * gamma[c] if scale else value
        return value + beta[c] if center else value

    return te.compute(x.shape, element, name="batch_norm")


def batch_norm_training(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor,
    moving_var: te.Tensor, *, axis: int, epsilon: float, center: bool, scale: bool,
    momentum: float, unbiased: bool,
) -> tuple[te.Tensor, ...]:
    """Batch norm by mean and biased variance of the batch, which it returns with the moving ones.

    Two passes over the data avoid cancellation in the variance.
    """
    count = functools.reduce(
        operator.mul, (s for i, s in enumerate(x.shape) if i != axis), const(1))
    size = count.astype(x.dtype)
    total = _channel_sum(x, axis, "batch_sum")
    mean = te.compute(total.shape, lambda c: total[c] / size, name="batch_mean")
    squares = _channel_sum(x, axis, "batch_squares", mean)
    variance = te.compute(total.shape, lambda c: squares[c] / size, name="batch_variance")

    def element(*index: PrimExpr) -> PrimExpr:
        c = index[axis]
        value = (x[index] - mean[c]) / te.sqrt(variance[c] + const(epsilon, x.dtype))
        value = value * gamma[c] if scale else value
        return value + beta[c] if center else value

    divisor = (count - 1).astype(x.dtype) if unbiased else size
    kept, added = const(1 - momentum, x.dtype), const(momentum, x.dtype)
    return (
        te.compute(x.shape, element, name="batch_norm"), mean, variance,
        te.compute(total.shape, lambda c: moving_mean[c] * kept + mean[c] * added,
                   name="moving_mean"),
        te.compute(total.shape,
                   lambda c: moving_var[c] * kept + variance[c] * size / divisor * added,
                   name="moving_variance"),
    )


def _channel_sum(x: te.Tensor, axis: int, name: str, mean: te.Tensor | None = None) -> te.Tensor:
    """The sum over all axes but one, or of squared deviations from ``mean`` if given."""
    inner = [te.reduce_axis(s, name=f"k{i}") for i, s in enumerate(x.shape) if i != axis]

    def element(c: PrimExpr) -> PrimExpr:
        over = [k.var for k in inner]
        value: PrimExpr = x[(*over[:axis], c, *over[axis:])]
        if mean is not None:
            value = (value - mean[c]) * (value - mean[c])
        return te.sum(value, axis=inner)

    return te.compute((x.shape[axis],), element, name=name)


def layer_norm(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    *,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> te.Tensor:
    """``x`` normalised along ``axis`` to mean 0 and variance 1, times gamma, plus beta.

    Two passes avoid cancellation: stages ``layer_norm_sum``, ``layer_norm_mean``,
    ``layer_norm_squares`` (summed deviations), ``layer_norm_scale``, ``layer_norm_output``.
    """
    total = _row_sum(x, axis, "layer_norm_sum")
    size = x.shape[axis].astype(x.dtype)
    mean = te.compute(total.shape, lambda *i: total[i] / size, name="layer_norm_mean")
    squares = _row_sum(x, axis, "layer_norm_squares", mean)
    factor = te.compute(
        total.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(squares[i] / size + const(epsilon, x.dtype)),
        name="layer_norm_scale",
    )

    def element(*index: PrimExpr) -> PrimExpr:
        row = (*index[:axis], *index[axis + 1:])
        value = (x[index] - mean[row]) * factor[row]
        value = value * gamma[index[axis]] if scale else value
        return value + beta[index[axis]] if center else value

    return te.compute(x.shape, element, name="layer_norm_output")


def _row_sum(x: te.Tensor, axis: int, name: str, mean: te.Tensor | None = None) -> te.Tensor:
    """The sum along ``axis``, or of squared deviations from ``mean`` if given."""
    k = te.reduce_axis(x.shape[axis], name="k")

    def element(*index: PrimExpr) -> PrimExpr:
        value: PrimExpr = x[(*index[:axis], k.var, *index[axis:])]
        if mean is not None:
            difference = value - mean[index]
            value = difference * difference
        return te.sum(value, k)

    return te.compute((*x.shape[:axis], *x.shape[axis + 1:]), element, name=name)


def lrn(
    x: te.Tensor, *, size: int, axis: int, bias: float, alpha: float, beta: float
) -> te.Tensor:
    """``x / (bias + alpha / size * sum of squares)**beta``, summed over ``size`` adjacent elements.

    Stages: ``lrn_sum`` (guarded at the ends of ``axis``) and ``lrn_output``. A short sum is
    unrolled into an expression, so that the operator is elementwise.
    """
    before = (size - 1) // 2
    extent = x.shape[axis]

    def square(index: tuple[PrimExpr, ...], offset: PrimExpr) -> PrimExpr:
        position = index[axis] + offset - before
        value = x[(*index[:axis], position, *index[axis + 1:])]
        inside = all_of(position >= 0, position < extent)
        return if_then_else(inside, value * value, const(0, x.dtype))

    def neighbours(*index: PrimExpr) -> PrimExpr:
        if size > MAX_WRITTEN_OUT:
            k = te.reduce_axis(size, name="k")
            return te.sum(square(index, k.var), k)
        return functools.reduce(operator.add, (square(index, const(k)) for k in range(size)))

    total = te.compute(x.shape, neighbours, name="lrn_sum")

    def element(*index: PrimExpr) -> PrimExpr:
        level = const(bias, x.dtype) + const(alpha / size, x.dtype) * total[index]
        return x[index] / _power(level, beta, x.dtype)

    return te.compute(x.shape, element, name="lrn_output")


def _power(value: PrimExpr, exponent: float, dtype: DType) -> PrimExpr:
    """``value ** exponent`` for ``value`` > 0; multiples of 1/4 use only square roots."""
    # Square roots are single instructions; a general power takes a logarithm and an exponential.
    # The usual exponent of LRN is 0.75.
    quarters = exponent * 4
    if quarters not in (1, 2, 3, 4):
        return te.pow(value, const(exponent, dtype))
    root = te.sqrt(value)
    return {
        1: lambda: te.sqrt(root),
        2: lambda: root,
        3: lambda: root * te.sqrt(root),
        4: lambda: value,
    }[int(quarters)]()
