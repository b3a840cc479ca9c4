"""Functions of the catalogue that build several calls: moments, sums of segments."""

from __future__ import annotations

from typing import Any

from weft.ir import Expr, infer_expr, may_be_equal
from weft.ir.op import as_expr
from weft.op.broadcast import add, broadcast_to, subtract, where
from weft.op.elementwise import exp, isfinite, log, sqrt
from weft.op.gradients import tensor_type
from weft.op.reduce import max as maximum_of
from weft.op.reduce import mean, sum, variance
from weft.op.transform.create import zeros
from weft.op.transform.like import zeros_like
from weft.op.transform.scatter import scatter_elements
from weft.op.transform.shape import reshape, squeeze
from weft.support.errors import AttrsError

__all__ = ["logsumexp", "mean_std", "mean_variance", "segment_sum", "std"]


def mean_variance(
    x: Any, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False,
    exclude: bool = False, unbiased: bool = False,
) -> tuple[Expr, Expr]:
    """The mean, and the variance (the mean squared distance from the mean)."""
    named = {"axis": axis, "exclude": exclude}
    kept = mean(x, keepdims=True, **named)
    spread = variance(x, kept, keepdims=keepdims, unbiased=unbiased, **named)
    return (kept if keepdims else mean(x, **named)), spread


def mean_std(x: Any, **attrs: Any) -> tuple[Expr, Expr]:
    """The mean and the standard deviation; attributes as for ``mean_variance``."""
    average, spread = mean_variance(x, **attrs)
    return average, sqrt(spread)


def std(x: Any, **attrs: Any) -> Expr:
    """The standard deviation; attributes as for ``mean_variance``."""
    return mean_std(x, **attrs)[1]


def logsumexp(
    x: Any, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Expr:
    """log(sum(exp(x))); the maximum is subtracted first to avoid overflow.

    An infinite maximum is not subtracted, because the difference would be NaN.
    """
    top = maximum_of(x, axis=axis, keepdims=True)
    shift = where(isfinite(top), top, zeros_like(top))
    total = log(sum(exp(subtract(x, shift)), axis=axis, keepdims=True))
    result = infer_expr(add(total, shift))
    if keepdims:
        return result
    axes = tuple(range(tensor_type(result).ndim)) if axis is None else axis
    return squeeze(result, axis=axes)


def segment_sum(data: Any, segment_ids: Any, *, num_segments: int) -> Expr:
    """Sums of the rows of ``data`` (along axis 0) with equal ids, at the row given by the id."""
    rows = tensor_type(infer_expr(as_expr(data)))
    ids = tensor_type(infer_expr(as_expr(segment_ids)))
    if ids.ndim != 1 or rows.ndim < 1 or not may_be_equal(ids.shape[0], rows.shape[0]):
        raise AttrsError("segment_sum needs one id for each row", expected=f"{rows.shape[:1]} ids",
                         got=str(ids))
    shape = rows.concrete_shape
    column = reshape(segment_ids, newshape=(shape[0], *(1,) * (len(shape) - 1)))
    positions = broadcast_to(column, shape=shape)
    start = zeros(shape=(num_segments, *shape[1:]), dtype=rows.dtype)
    return scatter_elements(start, positions, data, axis=0, reduction="add")
