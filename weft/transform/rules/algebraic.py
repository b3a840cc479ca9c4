"""Arithmetic identities."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_, const
from weft.transform.analysis.graph import known_type, op_name

SPREADS = NoMatch("the constant broadcasts its operand to a larger shape")


def unless_spread(x: Expr, whole: Expr) -> Expr | NoMatch:
    """``x``, if it has the type of ``whole``."""
    type_ = known_type(x)
    return x if type_ is not None and type_ == known_type(whole) else SPREADS


@rule(op.add(any_("x"), const(value=0)), op.subtract(any_("x"), const(value=0)), group="simplify")
def zero_is_neutral(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { subtract(add(0f, %x), 0f) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return unless_spread(x, call)


@rule(op.multiply(any_("x"), const(value=1)), op.divide(any_("x"), const(value=1)),
      op.power(any_("x"), const(value=1)), group="simplify")
def one_is_neutral(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { power(divide(multiply(1f, %x), 1f), 1f) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return unless_spread(x, call)


@rule(op.power(any_("x"), const("exponent", value=2)),
      op.power(any_("x"), const("exponent", value=3)), group="simplify")
def small_powers_are_products(x: Expr, exponent: Constant, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { add(power(%x, 2f), power(%x, 3f)) }
    =>
    fn (%x: Tensor[(4,), float32]) {
      add(multiply(%x, %x), multiply(multiply(%x, %x), %x))
    }
    """
    kept = unless_spread(x, call)
    if isinstance(kept, NoMatch):
        return kept
    square = op.multiply(x, x)
    return square if exponent.data.flat[0] == 2 else op.multiply(square, x)


@rule(op.subtract(any_("x"), const("c")), group="simplify")
def subtraction_of_a_constant_is_addition(x: Expr, c: Constant) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { subtract(%x, 2f) }
    =>
    fn (%x: Tensor[(4,), float32]) { add(%x, -2f) }
    """
    if not c.tensor_type.dtype.is_float:
        return NoMatch("the smallest integer cannot be negated")
    return op.add(x, Constant(-c.data, span=c.span))


@rule(op.add(op.add(any_("x"), const("a")).named("inner"), const("b")),
      op.multiply(op.multiply(any_("x"), const("a")).named("inner"), const("b")), group="simplify")
def constants_are_combined(
    x: Expr, a: Constant, b: Constant, inner: Call, call: Call
) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { multiply(multiply(add(add(%x, 1f), 2f), 4f), 2f) }
    =>
    fn (%x: Tensor[(4,), float32]) { multiply(add(%x, 3f), 8f) }
    """
    if known_type(inner) != known_type(call):
        return SPREADS
    if not a.tensor_type.dtype.is_float:
        return NoMatch("integers might overflow")
    shapes = a.data.shape, b.data.shape
    if np.broadcast_shapes(*shapes) not in shapes:
        return NoMatch("the outer product would be a larger constant")
    combine = np.add if op_name(call) == "add" else np.multiply
    constant = Constant(np.asarray(combine(a.data, b.data), a.data.dtype), span=b.span)
    return call.replace(args=(x, constant))


@rule(op.nn.relu(op.nn.relu(any_()).named("inner")), op.abs(op.abs(any_()).named("inner")),
      op.nn.relu(op.clip(any_(), a_min=lambda low: low >= 0).named("inner")), group="simplify")
def relu_of_a_nonnegative_value(inner: Call) -> Expr:
    """
    fn (%x: Tensor[(4,), float32]) { nn.relu(nn.relu(abs(abs(%x)))) }
    =>
    fn (%x: Tensor[(4,), float32]) { nn.relu(abs(%x)) }
    """
    return inner


@rule(op.maximum(any_("x"), const(value=0)), group="simplify")
def maximum_with_zero_is_relu(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { maximum(%x, 0f) }
    =>
    fn (%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """
    kept = unless_spread(x, call)
    return kept if isinstance(kept, NoMatch) else op.nn.relu(kept)


@rule(op.clip(op.nn.relu(any_("x")), a_min=lambda low: low >= 0), group="simplify")
def clip_from_zero_includes_relu(x: Expr, call: Call) -> Expr:
    """
    fn (%x: Tensor[(4,), float32]) { clip(nn.relu(%x), a_min=0.0, a_max=6.0) }
    =>
    fn (%x: Tensor[(4,), float32]) { clip(%x, a_min=0.0, a_max=6.0) }
    """
    return call.replace(args=(x,))


RULES = RuleSet(zero_is_neutral, one_is_neutral, small_powers_are_products,
                subtraction_of_a_constant_is_addition, constants_are_combined,
                relu_of_a_nonnegative_value, maximum_with_zero_is_relu,
                clip_from_zero_includes_relu)
