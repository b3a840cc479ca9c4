"""Operators that normalise or average along axes, as reductions and elementwise operators.

It computes the operator's tensor expression, rounding included. Sharding prefers this
form where devices hold parts of a reduced axis, since they then exchange reduced values alone
(``transform.sharding``).
"""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr
from weft.ir.shape import dim_product
from weft.op.gradients import known_dim, known_shape, scalar, size_value, tensor_type
from weft.op.reduce import reduced_axes


def mean(call: Call) -> Expr:
    attrs: Any = call.attrs
    total = op.sum(call.args[0], axis=attrs.axis, keepdims=attrs.keepdims, exclude=attrs.exclude)
    return _per_element(total, call, attrs)


def variance(call: Call) -> Expr:
    attrs: Any = call.attrs
    distance = op.subtract(*call.args)
    total = op.sum(op.multiply(distance, distance), axis=attrs.axis, keepdims=attrs.keepdims,
                   exclude=attrs.exclude)
    return _per_element(total, call, attrs, int(attrs.unbiased))


def _per_element(total: Expr, call: Call, attrs: Any, less: int = 0) -> Expr:
    x = call.args[0]
    shape = known_shape(x, call)
    over = dim_product(tuple(shape[a] for a in reduced_axes(attrs, len(shape))))
    count = known_dim(over - less, call)
    return op.divide(total, size_value(count, tensor_type(x).dtype))


def softmax(call: Call) -> Expr:
    _, powers, total = _powers(call)
    return op.multiply(powers, op.divide(scalar(1.0, call.args[0]), total))


def log_softmax(call: Call) -> Expr:
    shifted, _, total = _powers(call)
    return op.subtract(shifted, op.log(total))


def _powers(call: Call) -> tuple[Expr, Expr, Expr]:
    """Elements less the largest, their exponentials, and the sums of these."""
    attrs: Any = call.attrs
    shifted = op.subtract(call.args[0], op.max(call.args[0], axis=attrs.axis, keepdims=True))
    powers = op.exp(shifted)
    return shifted, powers, op.sum(powers, axis=attrs.axis, keepdims=True)


def cross_entropy(call: Call) -> Expr:
    return _mean_loss(op.log(call.args[0]), call)


def cross_entropy_with_logits(call: Call) -> Expr:
    return _mean_loss(call.args[0], call)


def _mean_loss(logs: Expr, call: Call) -> Expr:
    x = call.args[0]
    count = size_value(known_shape(x, call)[0], tensor_type(x).dtype)
    return op.subtract(scalar(0.0, x), op.divide(op.sum(op.multiply(logs, call.args[1])), count))
