"""Group normalisation: over groups of channels and all spatial axes."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.tir.expr import PrimExpr, const, int_value, maximum


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
