"""Simplification of index arithmetic and conditions under known ranges."""

from weft.tir.expr import PrimExpr
from weft.tir.simplify.analyzer import Analyzer

__all__ = ["Analyzer", "simplify"]


def simplify(e: PrimExpr) -> PrimExpr:
    """``e`` in canonical form, without knowledge about its variables."""
    return Analyzer().simplify(e)
