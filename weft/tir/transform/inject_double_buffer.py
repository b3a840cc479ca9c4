"""Double buffering: computes a marked stage one iteration ahead, into a buffer of two halves."""

from __future__ import annotations

import dataclasses
import itertools

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import BufferLoad, PrimExpr, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt

KEY = "double_buffer"


def _reads(node: Stmt) -> set[Buffer]:
    return {e.buffer for e in visitor.all_exprs(node) if type(e) is BufferLoad}


def _writes(node: Stmt) -> set[Buffer]:
    return {n.buffer for n in visitor.post_order_stmts(node) if isinstance(n, s.BufferStore)}


def _allocates(node: Stmt) -> set[Buffer]:
    return {n.buffer for n in visitor.post_order_stmts(node) if isinstance(n, s.Allocate)}


def _in_half(node: Stmt, buffer: Buffer, twice: Buffer, half: PrimExpr) -> Stmt:
    """``node`` with accesses of ``buffer`` redirected to half iteration ``half`` of ``twice``."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def on_expr(e: PrimExpr) -> PrimExpr:
        if type(e) is BufferLoad and e.buffer is buffer:
            return BufferLoad(twice, (half, *e.indices), e.predicate)
        return e

    def on_stmt(inner: Stmt) -> Stmt:
        if isinstance(inner, s.BufferStore) and inner.buffer is buffer:
            return inner.replace(buffer=twice, indices=(half, *inner.indices))
        return inner

    return visitor.transform_stmt(node, on_stmt, lambda e: visitor.transform_expr(e, on_expr, memo))


def _pipelined(loop: s.For) -> Stmt | None:
    """The loop with its first marked stage double-buffered; ``None`` if no stage qualifies."""
    for node in _directly_inside(loop.body):
        if isinstance(node, s.AttrStmt) and node.key == KEY:
            allocation = node.body
            if isinstance(allocation, s.Allocate) and _can_run_ahead(loop, *_split(allocation)):
                return _ahead(loop, node, allocation)
    return None


def _split(allocation: s.Allocate) -> tuple[Stmt, Stmt]:
    """The body of an allocation as the leading statements that fill the buffer, and the rest."""
    body = allocation.body
    stmts = body.stmts if isinstance(body, s.SeqStmt) else (body,)
    filling = list(itertools.takewhile(lambda n: allocation.buffer in _writes(n), stmts))
    return s.seq(filling), s.seq(stmts[len(filling):])


def _can_run_ahead(loop: s.For, fill: Stmt, rest: Stmt) -> bool:
    """Whether ``fill`` writes only its buffer and reads nothing that the loop writes."""
    inner = _allocates(fill)
    written = _writes(fill) - inner
    others = _writes(loop.body) - inner - written
    return len(written) == 1 and not written & _writes(rest) and not _reads(fill) & others


def _directly_inside(node: Stmt) -> list[Stmt]:
    """The statements that run exactly once per iteration: not in nested loops or branches."""
    found, stack = [], [node]
    while stack:
        inner = stack.pop()
        found.append(inner)
        if isinstance(inner, s.SeqStmt):
            stack.extend(reversed(inner.stmts))
        elif isinstance(inner, s.Allocate | s.LetStmt | s.AttrStmt):
            stack.append(inner.body)
    return found


def _ahead(loop: s.For, marked: s.AttrStmt, allocation: s.Allocate) -> Stmt:
    """Fill the first half before the loop; in iteration i fill half (i + 1) % 2, use i % 2."""
    buffer, var = allocation.buffer, loop.loop_var
    twice = dataclasses.replace(buffer, shape=(const(2), *buffer.shape), uid=next_uid())
    iteration = var - loop.min
    fill, rest = _split(allocation)
    following = visitor.substitute(fill, {var: var + 1})
    body = s.seq([
        s.IfThenElse(x.compare(x.LT, iteration + 1, loop.extent),
                     _in_half(following, buffer, twice, (iteration + 1) % 2)),
        _in_half(rest, buffer, twice, iteration % 2),
    ])

    def without(node: Stmt) -> Stmt:
        return body if node is marked else visitor.map_stmts(node, without)

    start = _in_half(visitor.substitute(fill, {var: loop.min}), buffer, twice, const(0))
    nonempty = x.compare(x.GT, loop.extent, const(0))
    if nonempty is not x.TRUE:
        start = s.IfThenElse(nonempty, start)
    return s.Allocate(twice, s.seq([start, loop.replace(body=without(loop.body))]))


def _rewrite(node: Stmt) -> Stmt:
    node = visitor.map_stmts(node, _rewrite)
    if isinstance(node, s.For) and node.kind is ForKind.SERIAL:
        return _pipelined(node) or node
    return node


def _unmarked(node: Stmt) -> Stmt:
    node = visitor.map_stmts(node, _unmarked)
    return node.body if isinstance(node, s.AttrStmt) and node.key == KEY else node


def inject_double_buffer(func: PrimFunc) -> PrimFunc:
    """Compute marked stages for the next iteration before the rest of this one.

    for i in range(4):
        attr('double_buffer', 'T')
        T = allocate(float32[8])
        for j in range(8):
            T[j] = A[i, j]
        for j in range(8):
            B[i, j] = T[j] * 2.0
    =>
    T = allocate(float32[2, 8])
    for j in range(8):
        T[0, j] = A[0, j]
    for i in range(4):
        if i + 1 < 4:
            for j in range(8):
                T[(i + 1) % 2, j] = A[i + 1, j]
        for j in range(8):
            B[i, j] = T[i % 2, j] * 2.0
    """
    marked = any(isinstance(n, s.AttrStmt) and n.key == KEY
                 for n in visitor.post_order_stmts(func.body))
    return visitor.map_body(visitor.map_body(func, _rewrite), _unmarked) if marked else func
