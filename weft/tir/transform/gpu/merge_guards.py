"""Moves conditions out of loops and joins statements under one condition.

``unify_threads`` tests conditions at single statements, so that barriers fit between them. Where
there is no barrier, one test in front of a loop is enough. It also keeps LLVM from hoisting loads
above the condition, where a thread could read an element while another thread writes it.
"""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import BufferLoad, Call, PrimExpr
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt, seq
from weft.tir.visitor import map_body, map_stmts, mentions, post_order, post_order_stmts


def merge_guards(func: PrimFunc) -> PrimFunc:
    """Test each condition once where it can be.

    for j in range(3):
        for i in range(4):
            if j < 2:
                A[j * 4 + i] = B[i]
    =>
    for j in range(3):
        if j < 2:
            for i in range(4):
                A[j * 4 + i] = B[i]
    """
    return map_body(func, _rewrite)


def _rewrite(node: Stmt) -> Stmt:
    node = map_stmts(node, _rewrite)
    match node:
        case s.For(body=s.IfThenElse(else_case=None) as inner) if _is_serial(node) \
                and not mentions(inner.condition, node.loop_var) and _may_move(inner):
            return inner.replace(then_case=node.replace(body=inner.then_case))
        case s.LetStmt(body=s.IfThenElse(else_case=None) as inner) \
                if not mentions(inner.condition, node.var) and _may_move(inner):
            return inner.replace(then_case=node.replace(body=inner.then_case))
        case s.SeqStmt():
            return _joined(node)
    return node


def _joined(node: s.SeqStmt) -> Stmt:
    out: list[Stmt] = []
    for stmt in node.stmts:
        last = out[-1] if out else None
        if isinstance(stmt, s.IfThenElse) and isinstance(last, s.IfThenElse) \
                and stmt.condition is last.condition and stmt.else_case is last.else_case is None \
                and _is_pure(stmt.condition):
            then = _rewrite(seq([last.then_case, stmt.then_case]))
            out[-1] = last.replace(then_case=then)
        else:
            out.append(stmt)
    return seq(out)


def _is_serial(node: s.For) -> bool:
    return node.kind in (s.ForKind.SERIAL, s.ForKind.UNROLLED)


def _is_pure(condition: PrimExpr) -> bool:
    """Whether the value of a condition does not depend on the point where it is tested."""
    return not any(isinstance(e, BufferLoad) for e in post_order(condition))


def _may_move(node: s.IfThenElse) -> bool:
    return _is_pure(node.condition) and not any(
        isinstance(n, s.Evaluate) and isinstance(n.value, Call) and n.value.name == "barrier"
        for n in post_order_stmts(node))
