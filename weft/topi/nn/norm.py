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
