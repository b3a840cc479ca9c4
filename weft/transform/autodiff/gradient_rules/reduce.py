"""Reductions: the gradient is spread over what was reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.ir.types import is_static
from weft.op.gradients import scalar, tensor_type
from weft.op.reduce import reduced_axes
from weft.support.errors import PassError
from weft.transform.autodiff.adjoint import zeros_like


def _with_axes(call: Call, value: Expr) -> Expr:
    """``value``, of the type of the result, with the reduced axes as axes of size 1."""
    attrs: Any = call.attrs
    axes = reduced_axes(attrs, tensor_type(call.args[0]).ndim)
    if attrs.keepdims:
        return value
    for axis in sorted(axes):
        value = op.expand_dims(value, axis=axis)
    return value


def spread(value: Expr, like: Expr) -> Expr:
    """``value`` broadcast to the shape of ``like``."""
    type_ = tensor_type(like)
    if is_static(type_):
        return op.broadcast_to(value, shape=type_.shape)
    return op.add(zeros_like(like), value)


def _sum(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [spread(_with_axes(call, dy), call.args[0])]


def _mean(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], call.attrs
    shape = tensor_type(x).shape
    count = 1
    for axis in reduced_axes(attrs, len(shape)):  # type: ignore[arg-type]
        size = shape[axis]
        if not isinstance(size, int):
            raise PassError("the gradient of a mean needs the number of elements", where=call.span,
                            got=tensor_type(x), help="fix the size of the reduced axes")
        count *= size
    return [spread(op.multiply(_with_axes(call, dy), scalar(1.0 / max(count, 1), dy)), x)]


def _extreme(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Elements that equal the extreme share its gradient."""
    x, attrs = call.args[0], call.attrs
    winners = op.cast(op.equal(x, _with_axes(call, y)), dtype=tensor_type(x).dtype)
    axes = reduced_axes(attrs, tensor_type(x).ndim)  # type: ignore[arg-type]
    count = op.sum(winners, axis=axes, keepdims=True)
    return [op.multiply(winners, op.divide(_with_axes(call, dy), count))]


def _prod(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Of a product with one zero, only that factor has a gradient: the product of the others."""
    x, attrs = call.args[0], call.attrs
    axes = reduced_axes(attrs, tensor_type(x).ndim)  # type: ignore[arg-type]
    zero, one = scalar(0.0, x), scalar(1.0, x)
    is_zero = op.equal(x, zero)
    others = op.prod(op.where(is_zero, one, x), axis=axes, keepdims=True)
    zeros = op.sum(op.cast(is_zero, dtype=tensor_type(x).dtype), axis=axes, keepdims=True)
    at_zero = op.where(op.equal(zeros, one), others, zero)
    slope = op.where(is_zero, at_zero, op.divide(_with_axes(call, y), op.where(is_zero, one, x)))
    return [op.multiply(_with_axes(call, dy), slope)]


RULES: dict[str, Callable[[Call, Expr, Expr], list[Expr]]] = {
    "max": _extreme,
    "mean": _mean,
    "min": _extreme,
    "prod": _prod,
    "sum": _sum,
}
