"""Classification losses."""

from __future__ import annotations

import math
from typing import Any

from weft import te
from weft.ir.dtype import int64
from weft.tir.expr import PrimExpr, const, maximum, minimum, select


def cross_entropy(predictions: te.Tensor, targets: te.Tensor, *, is_log: bool) -> te.Tensor:
    """-sum(targets * log(predictions)) / batch; stages ``entropy_sum`` and ``entropy_mean``."""
    n, c = (te.reduce_axis(size, name=name)
            for size, name in zip(predictions.shape, ("n", "c"), strict=True))

    def term() -> Any:
        value = predictions[n.var, c.var]
        return te.sum((value if is_log else te.log(value)) * targets[n.var, c.var], (n, c))

    total = te.compute((), term, name="entropy_sum")
    count = predictions.shape[0].astype(predictions.dtype)
    return te.compute((), lambda: const(0, total.dtype) - total[()] / count, name="entropy_mean")


def nll_loss(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor, *, reduction: str,
    ignore_index: int,
) -> te.Tensor:
    """The weighted losses, their sum, or their mean over the weights of targets not ignored.

    A target that is neither a class nor ignored weighs NaN, and makes NaN of its loss.
    """
    classes = predictions.shape[1]

    def weight_at(index: tuple[PrimExpr, ...]) -> PrimExpr:
        # An unsigned type has no negative class to ignore.
        target = targets[index].astype(int64)
        counts = target.not_equal(const(ignore_index, int64))
        is_class = _class(target, classes).equal(target)
        weight = select(is_class, weights[_class(target, classes)], const(math.nan, weights.dtype))
        return select(counts, weight, const(0, weights.dtype))

    def loss(*index: PrimExpr) -> PrimExpr:
        picked = predictions[(index[0], _class(targets[index], classes), *index[1:])]
        return const(0, predictions.dtype) - picked * weight_at(index)

    if reduction == "none":
        return te.compute(targets.shape, loss, name="nll_loss")
    total = _sum_of(targets, loss, "nll_sum")
    if reduction == "sum":
        return total
    weight = _sum_of(targets, lambda *i: weight_at(i), "nll_weight")
    return te.compute((), lambda: total[()] / weight[()], name="nll_mean")


def _class(target: PrimExpr, classes: PrimExpr) -> PrimExpr:
    # A target may be any number: one that is no class is read in bounds.
    return maximum(minimum(target.astype(int64), classes - 1), 0)


def _sum_of(like: te.Tensor, value: Any, name: str) -> te.Tensor:
    over = [te.reduce_axis(size, name=f"k{axis}") for axis, size in enumerate(like.shape)]
    return te.compute((), lambda: te.sum(value(*(k.var for k in over)), over), name=name)
