"""Removes statements without side effects: empty blocks, unused allocations, masked-off stores."""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import Broadcast, BufferLoad, Call, PrimExpr, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import SeqStmt, Stmt
from weft.tir.visitor import all_exprs, map_body, map_stmts, post_order, post_order_stmts


def _is_empty(stmt: Stmt | None) -> bool:
    return stmt is None or (isinstance(stmt, SeqStmt) and not stmt.stmts)


def _rewrite(stmt: Stmt) -> Stmt:
    stmt = map_stmts(stmt, _rewrite)
    match stmt:
        case s.SeqStmt():
            kept = [inner for inner in stmt.stmts if not _is_empty(inner)]
            return stmt if len(kept) == len(stmt.stmts) > 1 else s.seq(kept)
        case s.IfThenElse():
            if _is_empty(stmt.else_case):
                stmt = stmt.replace(else_case=None)
            return SeqStmt(()) if _is_empty(stmt.then_case) and stmt.else_case is None else stmt
        case s.For() | s.LetStmt() | s.AttrStmt():
            return SeqStmt(()) if _is_empty(stmt.body) else stmt
        case s.Allocate():
            return stmt if _uses(stmt.body, stmt) else stmt.body
        case s.BufferStore():
            return SeqStmt(()) if _is_never(stmt.predicate) else stmt
        case s.Evaluate():
            has_effect = any(type(e) is Call for e in post_order(stmt.value))
            return stmt if has_effect else SeqStmt(())
    return stmt


def _is_never(predicate: PrimExpr | None) -> bool:
    """Whether a mask is false in all lanes, as in vectors wholly beyond a tail."""
    value = predicate.value if isinstance(predicate, Broadcast) else predicate
    return value is not None and int_value(value) == 0


def _uses(body: Stmt, allocation: s.Allocate) -> bool:
    """Whether ``body`` loads from the allocated buffer or stores to it."""
    buffer = allocation.buffer
    return any(
        isinstance(n, s.BufferStore) and n.buffer is buffer for n in post_order_stmts(body)
    ) or any(type(e) is BufferLoad and e.buffer is buffer for e in all_exprs(body))


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Remove statements without side effects.

    T = allocate(float32[4])
    for i in range(4):
        if i < 2:
            pass
    A[0] = 1.0
    =>
    A[0] = 1.0
    """
    return map_body(func, _rewrite)
