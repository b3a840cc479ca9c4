"""Reductions of single elements."""

from __future__ import annotations

import math

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, TensorType, rule
from weft.ir.rewrite.pattern import any_
from weft.transform.analysis.graph import known_type
from weft.transform.rules.reshape import UNKNOWN, reshaped_like


@rule(op.sum(any_("x")), op.mean(any_("x")), op.max(any_("x")), op.min(any_("x")),
      op.prod(any_("x")), group="simplify")
def reduction_of_single_elements(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(1, 3), float32]) { sum(%x, axis=(0,)) }
    =>
    fn (%x: Tensor[(1, 3), float32]) { reshape(%x, newshape=(3,)) }
    """
    # Gradients of broadcasts have such sums where the axis was one long all along.
    before, after = known_type(x), known_type(call)
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return UNKNOWN
    sizes = [n for t in (before, after) for n in t.shape]
    if not all(isinstance(n, int) for n in sizes) or 0 in sizes:
        return UNKNOWN
    if math.prod(before.shape) != math.prod(after.shape) or before.dtype != after.dtype:
        return NoMatch("an axis of more than one element is reduced")
    return reshaped_like(x, call)


RULES = RuleSet(reduction_of_single_elements)
