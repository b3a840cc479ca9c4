"""Operators that return an operand as it is."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_, tuple_
from weft.transform.rules.algebraic import unless_spread


@rule(
    op.negative(op.negative(any_("x"))), op.logical_not(op.logical_not(any_("x"))), group="simplify"
)
def double_negation(x: Expr) -> Expr:
    """
    fn (%x: Tensor[(4,), float32]) { negative(negative(%x)) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return x


@rule(op.cast(any_("x")), op.broadcast_to(any_("x")), group="simplify")
def cast_to_the_same_type(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { cast(broadcast_to(%x, shape=(4,)), dtype="float32") }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    kept = unless_spread(x, call)
    return NoMatch("the type changes") if isinstance(kept, NoMatch) else kept


@rule(op.copy(any_("x")), op.concatenate(tuple_(any_("x"))), group="simplify")
def copy_or_concatenation_of_one_tensor(x: Expr) -> Expr:
    """
    fn (%x: Tensor[(4,), float32]) { concatenate((copy(%x),), axis=0) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    return x


def _only_forwards(strides: tuple[int, ...] | None) -> bool:
    return all(s > 0 for s in strides or ())


@rule(op.strided_slice(any_("x"), strides=_only_forwards), group="simplify")
def slice_of_the_whole_tensor(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { strided_slice(%x, begin=(0,), end=(4,)) }
    =>
    fn (%x: Tensor[(4,), float32]) { %x }
    """
    kept = unless_spread(x, call)
    return NoMatch("the slice is not the whole tensor") if isinstance(kept, NoMatch) else kept


@rule(op.where(any_(), any_("x"), any_("x")), group="simplify")
def where_with_equal_operands(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%c: Tensor[(4,), bool], %x: Tensor[(4,), float32]) { where(%c, %x, %x) }
    =>
    fn (%c: Tensor[(4,), bool], %x: Tensor[(4,), float32]) { %x }
    """
    return unless_spread(x, call)


RULES = RuleSet(double_negation, cast_to_the_same_type, copy_or_concatenation_of_one_tensor,
                slice_of_the_whole_tensor, where_with_equal_operands)
