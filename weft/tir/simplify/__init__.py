"""Simplification of index arithmetic and conditions."""

from weft.tir.expr import PrimExpr
from weft.tir.simplify.analyzer import Analyzer

__all__ = ["Analyzer", "simplify"]


def simplify(e: PrimExpr) -> PrimExpr:
    """``e`` in canonical form, nothing being known of its variables."""
    return Analyzer().simplify(e)
