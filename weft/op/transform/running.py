"""Cumulative maxima, minima and log-sum-exp along an axis: cummax, cummin, logcumsumexp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Constant, Expr, RelationContext, attr, int64, normalize_axis
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.traits import Family, OpTraits
from weft.op.batching import along
from weft.op.broadcast import add, equal, greater, less, logical_or, subtract, where
from weft.op.cut_axes import axes_but
from weft.op.elementwise import exp, isnan, log
from weft.op.gradients import (
    attrs_of,
    known_dim,
    known_shape,
    numbered,
    scalar,
    size_value,
    tensor_type,
)
from weft.op.transform.like import zeros_like
from weft.op.transform.scatter import scatter_elements
from weft.support.dataclass import dataclass
from weft.topi import scan as topi


@dataclass(frozen=True, kw_only=True)
class RunningAttrs(Attrs):
    axis: int = attr(0, "axis of accumulation")
    reverse: bool = attr(False, "start from the end")


def _relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_number(0, source)
    normalize_axis(ctx, ctx.attrs_as(RunningAttrs).axis, source.ndim)
    ctx.output(source)
    return True


def _float_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_float(0, source)
    return _relation(ctx)


def _accumulated(accumulate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, axis: int = 0, reverse: bool = False) -> np.ndarray:
        line = np.flip(x, axis) if reverse else x
        result = accumulate(line, axis=axis).astype(x.dtype)
        return np.ascontiguousarray(np.flip(result, axis) if reverse else result)

    return reference


def _running(name: str, combine: str, accumulate: Callable[..., np.ndarray], doc: str,
             *cases: Case) -> Op:
    def run(x: te.Tensor, attrs: RunningAttrs) -> te.Tensor:
        return topi.scan(x, attrs.axis % x.ndim, x.dtype, combine=combine, exclusive=False,
                         reverse=attrs.reverse)

    run.__doc__ = doc
    is_float = combine == "logaddexp"
    op = define_op(name, attrs=RunningAttrs, pattern=OpPattern.OPAQUE, level=3, inputs=("x",),
                   relation=_float_relation if is_float else _relation,
                   traits=OpTraits(family=Family.SCAN, combine=combine))(run)
    op.batching(along("axis"))
    op.cut_axes(axes_but("axis"))
    op.spec(_accumulated(accumulate), op_case((3, 5), axis=1), op_case((4, 3)), op_case((6,)),
            op_case((2, 3, 4), axis=-2, reverse=True), op_case((0, 3)), op_case((9, 4), axis=1),
            op_case((2, 3, 2, 67), axis=1),
            *cases)
    return op


_WITH_NAN = np.array([1.0, -2.0, 4.0, np.nan, 9.0], np.float32)
_EXTREME_CASES = (op_case(_WITH_NAN), op_case(_WITH_NAN, reverse=True),
                  op_case((4, 5), axis=1, dtypes="int32", low=-3, high=3))
cummax = _running("cummax", "max", np.maximum.accumulate,
                  "The cumulative maximum along an axis; NaN after a NaN.",
                  *_EXTREME_CASES)
cummin = _running("cummin", "min", np.minimum.accumulate,
                  "The cumulative minimum along an axis; NaN after a NaN.",
                  *_EXTREME_CASES)
logcumsumexp = _running("logcumsumexp", "logaddexp", np.logaddexp.accumulate,
                        "The cumulative log(sum(exp(x))) along an axis.")


def _extreme_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """Each result's gradient goes to the element that it equals, the last of equal ones."""
    (x,), attrs = call.args, attrs_of(call, RunningAttrs)
    shape = known_shape(x, call)
    axis = attrs.axis % len(shape)
    steps = numbered((shape[axis], *(1,) * (len(shape) - axis - 1)))
    ranks = get_op("reverse")(steps, axis=0) if attrs.reverse else steps
    # From the first NaN on, the results are NaN, which equal nothing: they come from the last NaN.
    is_here = logical_or(equal(x, y), isnan(x)) if tensor_type(x).dtype.is_float else equal(x, y)
    nowhere = Constant(np.asarray(-1, np.int64))
    last = size_value(known_dim(shape[axis] - 1, call), int64)
    rank = cummax(where(is_here, ranks, nowhere), axis=axis, reverse=attrs.reverse)
    position = subtract(last, rank) if attrs.reverse else rank
    return [scatter_elements(zeros_like(x), position, dy, axis=axis, reduction="add")]


def _log_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """exp(x[i]) * sum over j >= i of dy[j] exp(-y[j]), in logarithms by the sign of dy."""
    (x,), attrs = call.args, attrs_of(call, RunningAttrs)
    zero = scalar(0, x)

    def part(is_part: Expr, magnitude: Expr) -> Expr:
        safe = where(is_part, magnitude, scalar(1, x))
        terms = where(is_part, subtract(log(safe), y), scalar(-np.inf, x))
        later = logcumsumexp(terms, axis=attrs.axis, reverse=not attrs.reverse)
        return exp(add(later, x))

    return [subtract(part(greater(dy, zero), dy),
                     part(less(dy, zero), subtract(zero, dy)))]


cummax.gradient(_extreme_gradient)
cummin.gradient(_extreme_gradient)
logcumsumexp.gradient(_log_gradient)


@logcumsumexp.jvp
def _log_tangent(call: Call, y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    """Sum over j <= i of t[j] exp(x[j] - y[i]), in logarithms by the sign of t."""
    (x,), (tangent,), attrs = call.args, tangents, attrs_of(call, RunningAttrs)
    if tangent is None:
        return None
    zero, nothing = scalar(0, x), scalar(-np.inf, x)
    # The sum of no numbers: each part is exp(-inf) there, and must not become NaN.
    safe_y = where(equal(y, nothing), zero, y)

    def part(is_part: Expr, magnitude: Expr) -> Expr:
        safe = where(is_part, magnitude, scalar(1, x))
        terms = where(is_part, add(log(safe), x), nothing)
        earlier = logcumsumexp(terms, axis=attrs.axis, reverse=attrs.reverse)
        return exp(subtract(earlier, safe_y))

    return subtract(part(greater(tangent, zero), tangent),
                    part(less(tangent, zero), subtract(zero, tangent)))
