"""Elementwise operators whose slope depends on a comparison, and powers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.op.gradients import broadcast_gradients, scalar, sum_to, tensor_type
from weft.transform.autodiff.adjoint import zeros_like


def _cast(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.cast(dy, dtype=tensor_type(call.args[0]).dtype)]


def _clip(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], call.attrs
    low, high = scalar(attrs.a_min, x), scalar(attrs.a_max, x)  # type: ignore[attr-defined]
    inside = op.logical_and(op.greater_equal(x, low), op.less_equal(x, high))
    return [op.where(inside, dy, scalar(0.0, dy))]


def _leaky_relu(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], call.attrs
    slope = scalar(attrs.alpha, x)  # type: ignore[attr-defined]
    return [op.where(op.greater(x, scalar(0.0, x)), dy, op.multiply(dy, slope))]


def _chosen(compare: Callable[[Expr, Expr], Expr]) -> Callable[[Call, Expr, Expr], list[Expr]]:
    """The gradient goes to the operand that was chosen, of equal ones to the first."""

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        first, zero = compare(*call.args), scalar(0.0, dy)
        left, right = op.where(first, dy, zero), op.where(first, zero, dy)
        return broadcast_gradients(call, left, right)

    return rule


def _power(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    base, exponent = call.args
    one = scalar(1.0, exponent)
    slope = op.multiply(exponent, op.power(base, op.subtract(exponent, one)))
    # 0 ** e does not move with e, though log 0 is infinite.
    positive = op.greater(base, scalar(0.0, base))
    grown = op.multiply(y, op.log(op.where(positive, base, scalar(1.0, base))))
    return broadcast_gradients(call, op.multiply(dy, slope), op.multiply(dy, grown))


def _where(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    condition, x, y = call.args
    zero, source = scalar(0.0, dy), tensor_type(call)
    return [
        zeros_like(condition),
        sum_to(op.where(condition, dy, zero), source, tensor_type(x)),
        sum_to(op.where(condition, zero, dy), source, tensor_type(y)),
    ]


RULES: dict[str, Any] = {
    "cast": _cast,
    "clip": _clip,
    "maximum": _chosen(op.greater_equal),
    "minimum": _chosen(op.less_equal),
    "nn.leaky_relu": _leaky_relu,
    "power": _power,
    "where": _where,
}
