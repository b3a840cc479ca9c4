"""Identities of arithmetic: calls that compute what is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr, Tuple
from weft.transform.graph import known_type, op_name
from weft.transform.rules.rule import LocalRules, local_rule

RULES = LocalRules()


def constant_operand(call: Call) -> tuple[Expr, Constant] | None:
    """The operands of a commutative call of which the last (or only the first) is constant."""
    left, right = call.args
    if isinstance(right, Constant):
        return left, right
    return (right, left) if isinstance(left, Constant) else None


def _keeps_type(call: Call, x: Expr) -> bool:
    return known_type(x) is not None and known_type(x) == known_type(call)


def _is_all(constant: Expr, value: float) -> bool:
    return isinstance(constant, Constant) and bool((constant.data == value).all())


def _neutral(value: float) -> Callable[[Call], Expr | None]:
    def rule(call: Call) -> Expr | None:
        split = constant_operand(call)
        if split is None or not _is_all(split[1], value):
            return None
        return split[0] if _keeps_type(call, split[0]) else None

    return rule


def _neutral_right(value: float) -> Callable[[Call], Expr | None]:
    def rule(call: Call) -> Expr | None:
        x, c = call.args
        return x if _is_all(c, value) and _keeps_type(call, x) else None

    return rule


@local_rule(RULES, "add")
def zero_is_neutral_in_addition(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { add(%x, 0f) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return _neutral(0)(call)


@local_rule(RULES, "multiply")
def one_is_neutral_in_multiplication(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { multiply(1f, %x) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return _neutral(1)(call)


@local_rule(RULES, "subtract")
def zero_is_neutral_in_subtraction(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { subtract(%x, 0f) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return _neutral_right(0)(call)


@local_rule(RULES, "divide", "power")
def one_is_neutral_in_division_and_power(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { divide(power(%x, 1f), 1f) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return _neutral_right(1)(call)


@local_rule(RULES, "subtract")
def subtraction_of_a_constant_is_addition(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { subtract(%x, 2f) }
    =>
    fn (%x: Tensor[(4,), float32]) { add(%x, -2f) }
    """
    x, c = call.args
    if not isinstance(c, Constant) or not c.tensor_type.dtype.is_float:
        return None
    return op.add(x, Constant(-c.data, span=c.span), span=call.span)


@local_rule(RULES, "add", "multiply")
def constants_meet(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { add(add(%x, 1f), 2f) }
    =>
    fn (%x: Tensor[(4,), float32]) { add(%x, 3f) }
    """
    outer = constant_operand(call)
    if outer is None or op_name(outer[0]) != op_name(call):
        return None
    inner = constant_operand(outer[0])  # type: ignore[arg-type]
    if inner is None or known_type(outer[0]) != known_type(call):
        return None
    x, first, second = inner[0], inner[1].data, outer[1].data
    if not inner[1].tensor_type.dtype.is_float:
        return None
    if np.broadcast_shapes(first.shape, second.shape) not in (first.shape, second.shape):
        return None  # a row and a column would make a matrix
    combined: Any = first + second if op_name(call) == "add" else first * second
    constant = Constant(np.asarray(combined, first.dtype), span=call.span)
    return call.replace(args=(x, constant), checked_type=call.checked_type)


@local_rule(RULES, "nn.relu", "abs")
def relu_and_abs_are_idempotent(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { nn.relu(nn.relu(%x)) }
    =>
    fn (%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """
    return call.args[0] if op_name(call.args[0]) == op_name(call) else None


@local_rule(RULES, "negative", "logical_not")
def negation_undoes_itself(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { negative(negative(%x)) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    inner = call.args[0]
    return inner.args[0] if op_name(inner) == op_name(call) else None  # type: ignore[attr-defined]


@local_rule(RULES, "maximum")
def maximum_with_zero_is_relu(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { maximum(%x, 0f) }
    =>
    fn (%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """
    split = constant_operand(call)
    if split is None or not _is_all(split[1], 0) or not _keeps_type(call, split[0]):
        return None
    return op.nn.relu(split[0], span=call.span)


@local_rule(RULES, "clip")
def clip_from_zero_includes_relu(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { clip(nn.relu(%x), a_min=0.0, a_max=6.0) }
    =>
    fn (%x: Tensor[(4,), float32]) { clip(%x, a_min=0.0, a_max=6.0) }
    """
    inner = call.args[0]
    if op_name(inner) != "nn.relu" or call.attrs.a_min < 0:  # type: ignore[attr-defined]
        return None
    return call.replace(args=inner.args, checked_type=call.checked_type)  # type: ignore[attr-defined]


@local_rule(RULES, "nn.relu")
def relu_of_a_clip_from_zero_is_the_clip(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { nn.relu(clip(%x, a_min=0.0, a_max=6.0)) }
    =>
    fn (%x: Tensor[(4,), float32]) { clip(%x, a_min=0.0, a_max=6.0) }
    """
    inner: Any = call.args[0]
    return inner if op_name(inner) == "clip" and inner.attrs.a_min >= 0 else None


@local_rule(RULES, "cast", "broadcast_to")
def conversion_to_the_same_type_is_nothing(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { cast(%x, dtype="float32") }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return call.args[0] if _keeps_type(call, call.args[0]) else None


@local_rule(RULES, "copy")
def copy_is_identity(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { exp(copy(%x)) }
    =>
    fn (%x: Tensor[(4,), float32]) { exp(%x) }
    """
    return call.args[0]


@local_rule(RULES, "concatenate")
def concatenation_of_one_is_identity(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { concatenate((%x,), axis=0) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    parts = call.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None


@local_rule(RULES, "strided_slice")
def slice_of_everything_is_identity(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(4,), float32]) { strided_slice(%x, begin=(0,), end=(4,)) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    strides = call.attrs.strides or ()  # type: ignore[attr-defined]
    if any(s < 0 for s in strides) or not _keeps_type(call, call.args[0]):
        return None
    return call.args[0]


@local_rule(RULES, "where")
def choice_between_equals_is_no_choice(call: Call) -> Expr | None:
    """
    fn (%c: Tensor[(4,), bool], %x: Tensor[(4,), float32]) { where(%c, %x, %x) }
    =>
    fn (%c: Tensor[(4,), bool], %x: Tensor[(4,), float32]) { %x }
    """
    _, x, y = call.args
    return x if x is y and _keeps_type(call, x) else None
