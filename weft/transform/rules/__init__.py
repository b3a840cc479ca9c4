"""Rules by subject; ``SIMPLIFICATIONS`` is what ``simplify_expr`` applies."""

from weft.ir.rewrite.driver import RuleSet
from weft.transform.rules import (
    algebraic,
    distributive,
    division,
    gather,
    layout,
    padding,
    product,
    reshape,
    transpose,
)

SIMPLIFICATIONS = RuleSet(
    algebraic.RULES, distributive.RULES, division.RULES, transpose.RULES, product.RULES,
    reshape.RULES, layout.RULES, padding.RULES, gather.RULES,
)

__all__ = ["SIMPLIFICATIONS"]
