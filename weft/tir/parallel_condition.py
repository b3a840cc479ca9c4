"""Parallel loops whose iterations are shared among threads only if a condition holds.

The amount of work in a loop of symbolic extent is known only at run time. ``attr("parallel_if",
c)`` around a parallel loop runs it on the calling thread where ``c`` is false. Results do not
change.
"""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import PrimExpr
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import map_body, map_stmts

PARALLEL_IF = "parallel_if"


def parallel_if(func: PrimFunc, condition: PrimExpr) -> PrimFunc:
    """``func`` with ``condition``, over its size parameters, around each parallel loop."""

    def wrap(node: Stmt) -> Stmt:
        if isinstance(node, s.For) and node.kind is ForKind.PARALLEL:
            return s.AttrStmt(PARALLEL_IF, condition, node)
        return map_stmts(node, wrap)

    return map_body(func, wrap)
