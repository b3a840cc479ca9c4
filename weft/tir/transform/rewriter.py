"""A statement rewriter with an ``Analyzer`` that knows enclosing loop ranges and conditions."""

from __future__ import annotations

from collections.abc import Callable

from weft.tir import stmt as s
from weft.tir.expr import FALSE, TRUE, BufferLoad, PrimExpr, Var, not_
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.size_text import bind_size
from weft.tir.stmt import Stmt
from weft.tir.visitor import (
    depth_checkpoints,
    loads_from,
    map_exprs,
    map_stmts,
    post_order,
    post_order_stmts,
)


class RewriterWithAnalyzer:
    """Rewrites statements top-down; ``analyzer`` knows the enclosing ranges and conditions.

    Subclasses override ``expr``, which rewrites each whole expression of a statement, and the
    methods of the statements that they change. Ranges and conditions are simplified on the way,
    and branches with a constant condition are replaced by the side that they take.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = Analyzer()
        self.heights: dict[PrimExpr, int] = {}
        for param in func.params:
            if isinstance(param, Var):
                bind_size(self.analyzer, param)

    def expr(self, e: PrimExpr) -> PrimExpr:
        """A whole expression of a statement, simplified."""
        for inner in depth_checkpoints(e, self.heights):
            self.analyzer.simplify(inner)
        return self.analyzer.simplify(e)

    def visit(self, node: Stmt) -> Stmt:
        """The rewritten statement."""
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        return map_stmts(map_exprs(node, self.expr), self.visit)

    def loop(self, node: s.For) -> Stmt:
        """A loop whose body is rewritten under the range of its variable."""
        node = node.replace(min=self.expr(node.min), extent=self.expr(node.extent))
        self.analyzer.bind(node.loop_var, node.min, node.extent)
        body = self.visit(node.body)
        self.analyzer.release(node.loop_var)
        return node.replace(body=body)

    def branch(self, node: s.IfThenElse) -> Stmt:
        """A branch, or one side of it if its condition is constant."""
        condition = self.expr(node.condition)
        if condition is TRUE:
            return self.visit(node.then_case)
        if condition is FALSE:
            return s.SeqStmt(()) if node.else_case is None else self.visit(node.else_case)
        then_case = self.case(condition, node.then_case)
        else_case = node.else_case
        if else_case is not None:
            else_case = self.case(not_(condition), else_case)
        return node.replace(condition=condition, then_case=then_case, else_case=else_case)

    def case(self, condition: PrimExpr, body: Stmt) -> Stmt:
        """Rewrite one side of a branch, in which ``condition`` holds unless it is stored to."""
        if _is_changed(condition, body):
            return self.visit(body)
        with self.analyzer.constraint(condition):
            return self.visit(body)

    def let(self, node: s.LetStmt) -> Stmt:
        """A let whose body is rewritten knowing the bounds of the value."""
        value = self.expr(node.value)
        self.analyzer.bind_value(node.var, value)
        return node.replace(value=value, body=self.visit(node.body))


def _is_changed(condition: PrimExpr, body: Stmt) -> bool:
    """Whether ``body`` stores to, or passes on, memory that ``condition`` reads."""
    read = {e.buffer for e in post_order(condition) if isinstance(e, BufferLoad)}
    return bool(read) and any(
        inner.buffer in read if isinstance(inner, s.BufferStore) else
        isinstance(inner, s.Evaluate) and any(loads_from(inner.value, b) for b in read)
        for inner in post_order_stmts(body))


_RULES: dict[type, Callable[[RewriterWithAnalyzer, s.Stmt], Stmt]] = {
    s.For: lambda r, node: r.loop(node),  # type: ignore[arg-type]
    s.IfThenElse: lambda r, node: r.branch(node),  # type: ignore[arg-type]
    s.LetStmt: lambda r, node: r.let(node),  # type: ignore[arg-type]
}
