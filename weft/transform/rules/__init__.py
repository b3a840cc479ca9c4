"""Rules by subject; ``SIMPLIFICATIONS`` is what ``simplify_expr`` applies."""

from weft.ir.rewrite import RuleSet
from weft.transform.rules import algebraic, layout, reshape, transpose

SIMPLIFICATIONS = RuleSet(algebraic.RULES, transpose.RULES, reshape.RULES, layout.RULES)

__all__ = ["SIMPLIFICATIONS"]
