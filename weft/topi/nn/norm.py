"""Normalizations: softmax, batch, layer, group and RMS norm, and local response."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.ir import DType
from weft.tir import PrimExpr, all_of, const, if_then_else, int_value, maximum, select

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


Power = Callable[[PrimExpr], PrimExpr]

# One instruction per vector; the maximum that propagates NaN needs three.
_largest = te.comm_reducer(lambda a, b: select(a > b, a, b), te.min_value, "largest")


def softmax(x: te.Tensor, axis: int, exp: Power = te.exp) -> te.Tensor:
    """exp(x - max) / sum exp(x - max) along ``axis``; ``exp`` may be an approximation.

    Stages: ``softmax_max``, ``softmax_exp``, ``softmax_sum``,
    ``softmax_scale`` (one division per row), ``softmax_output``.
    """
    _, powers, total = _stages(x, axis, exp)
    scale = te.compute(
        total.shape, lambda *i: const(1, x.dtype) / total[i], name="softmax_scale",
    )
    return te.compute(
        x.shape, lambda *i: powers[i] * scale[_without(i, axis)], name="softmax_output",
    )


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """(x - max) - log sum exp(x - max) along ``axis``.

    Stages: ``softmax_max``, ``softmax_exp``, ``softmax_sum``, ``log_softmax_output``.
    """
    largest, _, total = _stages(x, axis, te.exp)

    def element(*index: PrimExpr) -> PrimExpr:
        row = _without(index, axis)
        return x[index] - largest[row] - te.log(total[row])

    return te.compute(x.shape, element, name="log_softmax_output")


def _stages(x: te.Tensor, axis: int, exp: Power) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The maximum, the exponentials relative to it, and their sum.

    The maximum may ignore NaN: its exponential makes the sum NaN, and so the whole row.
    """
    largest = _along(x, axis, _largest, "softmax_max")
    powers = te.compute(
        x.shape, lambda *i: exp(x[i] - largest[_without(i, axis)]), name="softmax_exp",
    )
    return largest, powers, _along(powers, axis, te.sum, "softmax_sum")


def _without(index: tuple[PrimExpr, ...], axis: int) -> tuple[PrimExpr, ...]:
    return (*index[:axis], *index[axis + 1:])


def _along(x: te.Tensor, axis: int, reducer: Callable[..., Any], name: str) -> te.Tensor:
    k = te.reduce_axis(x.shape[axis], name="k")
    return te.compute(
        _without(x.shape, axis),
        lambda *i: reducer(x[(*i[:axis], k.var, *i[axis:])], k),
        name=name,
    )


def group_norm(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    *,
    group_size: PrimExpr,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> te.Tensor:
    """``x`` normalised per batch index and group of ``group_size`` channels along ``axis``.

    Two passes avoid cancellation: stages ``group_norm_sum``, ``group_norm_mean``,
    ``group_norm_squares`` (summed deviations), ``group_norm_scale``, ``group_norm_output``.
    """
    single = int_value(group_size) == 1  # instance normalisation: one group per channel

    def group_of(c: PrimExpr) -> PrimExpr:
        return c if single else c // maximum(group_size, 1)

    groups = x.shape[axis] if single else x.shape[axis] // maximum(group_size, 1)
    count = group_size.astype(x.dtype)
    for position, size in enumerate(x.shape):
        if position not in (0, axis):
            count = count * size.astype(x.dtype)
    total = _group_sum(x, axis, group_size, groups, "group_norm_sum")
    mean = te.compute(total.shape, lambda *i: total[i] / count, name="group_norm_mean")
    squares = _group_sum(x, axis, group_size, groups, "group_norm_squares", mean)
    factor = te.compute(
        total.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(squares[i] / count + const(epsilon, x.dtype)),
        name="group_norm_scale",
    )

    def element(*index: PrimExpr) -> PrimExpr:
        group = (index[0], group_of(index[axis]))
        value = (x[index] - mean[group]) * factor[group]
        value = value * gamma[index[axis]] if scale else value
        return value + beta[index[axis]] if center else value

    return te.compute(x.shape, element, name="group_norm_output")


def _group_sum(
    x: te.Tensor, axis: int, group_size: PrimExpr, groups: PrimExpr, name: str,
    mean: te.Tensor | None = None,
) -> te.Tensor:
    """The sum over each group, or of squared deviations from ``mean`` if given."""
    over = {p: te.reduce_axis(size, name=f"k{p}")
            for p, size in enumerate(x.shape) if p not in (0, axis)}
    inside = None if int_value(group_size) == 1 else te.reduce_axis(group_size, name="c")

    def element(n: PrimExpr, g: PrimExpr) -> Any:
        channel = g if inside is None else g * group_size + inside.var
        coord = [over[p].var if p in over else channel for p in range(x.ndim)]
        value: PrimExpr = x[(n, *coord[1:])]
        if mean is not None:
            difference = value - mean[n, g]
            value = difference * difference
        # In memory order: the schedule can fuse axes that are traversed as one.
        axes = sorted([*over.items(), *([] if inside is None else [(axis, inside)])],
                      key=lambda pair: pair[0])
        return te.sum(value, [k for _, k in axes]) if axes else value

    return te.compute((x.shape[0], groups), element, name=name)


def rms_norm(x: te.Tensor, weight: te.Tensor, *, axis: int, epsilon: float) -> te.Tensor:
    """``x`` divided by its root mean square along ``axis``, times ``weight``.

    Stages ``rms_norm_squares``, ``rms_norm_scale``, ``rms_norm_output``.
    """
    squares = _square_sum(x, (axis,), "rms_norm_squares")
    size = x.shape[axis].astype(x.dtype)
    factor = te.compute(
        squares.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(squares[i] / size + const(epsilon, x.dtype)),
        name="rms_norm_scale",
    )

    def element(*index: PrimExpr) -> PrimExpr:
        return x[index] * factor[_without_axes(index, (axis,))] * weight[index[axis]]

    return te.compute(x.shape, element, name="rms_norm_output")


def l2_normalize(x: te.Tensor, *, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """``x`` divided by its Euclidean norm along ``axes``; the squared norm is at least ``epsilon``.

    Stages ``l2_norm_squares``, ``l2_norm_scale``, ``l2_norm_output``.
    """
    squares = _square_sum(x, axes, "l2_norm_squares")
    factor = te.compute(
        squares.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(maximum(squares[i], const(epsilon, x.dtype))),
        name="l2_norm_scale",
    )
    return te.compute(x.shape, lambda *i: x[i] * factor[_without_axes(i, axes)],
                      name="l2_norm_output")


def _without_axes(index: tuple[PrimExpr, ...], axes: Sequence[int]) -> tuple[PrimExpr, ...]:
    return tuple(i for axis, i in enumerate(index) if axis not in axes)


def _square_sum(x: te.Tensor, axes: Sequence[int], name: str) -> te.Tensor:
    over = {axis: te.reduce_axis(x.shape[axis], name=f"k{axis}") for axis in sorted(axes)}

    def element(*index: PrimExpr) -> Any:
        rest = iter(index)
        position = tuple(over[p].var if p in over else next(rest) for p in range(x.ndim))
        return te.sum(x[position] * x[position], list(over.values()))

    return te.compute(_without_axes(x.shape, axes), element, name=name)
