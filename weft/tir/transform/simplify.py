"""Simplifies expressions; removes branches on constants and loops of one iteration."""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.visitor import map_body, substitute


class _Simplifier(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        extent = self.expr(node.extent)
        if int_value(extent) == 1 and node.kind is not s.ForKind.THREAD_BINDING:
            return self.visit(substitute(node.body, {node.loop_var: self.expr(node.min)}))
        if extent is const(0):
            return s.SeqStmt(())
        return super().loop(node)


def simplify(func: PrimFunc) -> PrimFunc:
    """Simplify under the ranges of enclosing loops and the conditions of enclosing branches.

    for i in range(1):
        for j in range(16):
            if likely(i * 16 + j < 16):
                A[(i * 16 + j) // 16, j] = 1.0
    =>
    for j in range(16):
        A[0, j] = 1.0
    """
    return map_body(func, _Simplifier(func).visit)
