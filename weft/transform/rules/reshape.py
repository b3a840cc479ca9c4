"""Reshapes that cancel or combine."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Expr, NoMatch, OpTraits, RuleSet, TensorType, has_any, rule
from weft.ir.rewrite.pattern import Term, any_, call_where
from weft.transform.analysis.graph import known_type

UNKNOWN = NoMatch("the shape has unknown sizes")


def _is_reshape(traits: OpTraits) -> bool:
    return traits.is_removable_reshape


def _reshape(x: Term) -> Term:
    return call_where(_is_reshape, x)


def reshaped_like(x: Expr, whole: Expr) -> Expr | NoMatch:
    """``x`` in the shape of ``whole``, which has the same elements in the same order."""
    type_ = known_type(whole)
    if not isinstance(type_, TensorType) or has_any(type_.shape):
        return UNKNOWN
    if known_type(x) == type_:
        return x
    # A size of 0 would mean to copy a size of the argument.
    return op.reshape(x, newshape=type_.shape, allowzero=0 in type_.shape)


@rule(_reshape(any_("x")), group="simplify")
def reshape_to_the_same_shape(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3), float32]) { reshape(%x, newshape=(2, -1)) }
    =>
    fn (%x: Tensor[(2, 3), float32]) { %x }
    """
    if known_type(x) != known_type(call):
        return NoMatch("the shape changes")
    result = reshaped_like(x, call)
    return result if result is x else UNKNOWN


@rule(_reshape(_reshape(any_("x"))), group="simplify")
def reshape_of_reshape(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3), float32]) { squeeze(reshape(expand_dims(%x, axis=0), newshape=(1, 6))) }
    =>
    fn (%x: Tensor[(2, 3), float32]) { reshape(%x, newshape=(6,)) }
    """
    return reshaped_like(x, call)


RULES = RuleSet(reshape_to_the_same_shape, reshape_of_reshape)
