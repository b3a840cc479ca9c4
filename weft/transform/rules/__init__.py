"""Rewrite rules by subject; ``simplify_expr`` applies ``SIMPLIFICATIONS``."""

from weft.ir.rewrite.rules import RuleSet
from weft.transform.rules import (
    algebraic,
    blocks,
    distributive,
    division,
    gather,
    layout,
    matmul,
    padding,
    reshape,
    transpose,
)

SIMPLIFICATIONS = RuleSet(algebraic.RULES, distributive.RULES, division.RULES, transpose.RULES,
                          matmul.RULES, reshape.RULES, layout.RULES, padding.RULES, gather.RULES,
                          blocks.RULES)

__all__ = ["SIMPLIFICATIONS"]
