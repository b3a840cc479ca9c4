"""Rules by subject; ``SIMPLIFICATIONS`` is what ``simplify_expr`` applies."""

from weft.transform.rules import algebraic, layout, reshape, transpose
from weft.transform.rules.rule import LocalRules

SIMPLIFICATIONS = LocalRules(algebraic.RULES, transpose.RULES, reshape.RULES, layout.RULES)

__all__ = ["SIMPLIFICATIONS", "LocalRules"]
