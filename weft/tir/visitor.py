"""Traversal and rewriting of loop programs.

Expressions are interned: a walk visits each distinct node once, and rebuilding a node with
unchanged children returns the node itself. Rewriting uses the folding constructors of
``weft.tir.expr``, so that substituting a constant folds all expressions that become constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, overload

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var
from weft.tir.func import PrimFunc

ExprFn = Callable[[PrimExpr], PrimExpr]
StmtFn = Callable[[s.Stmt], s.Stmt]

_BINARY: dict[type, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    x.Add: x.add, x.Sub: x.sub, x.Mul: x.mul, x.Div: x.div, x.FloorDiv: x.floordiv,
    x.FloorMod: x.floormod, x.Min: x.minimum, x.Max: x.maximum, x.And: x.all_of, x.Or: x.any_of,
    **{node: (lambda a, b, node=node: x.compare(node, a, b))
       for node in (x.EQ, x.NE, x.LT, x.LE, x.GT, x.GE)},
}  # fmt: skip


def rebuild_binary(node: type, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``node(a, b)``, constant-folded."""
    return _BINARY[node](a, b)


def _load_children(e: x.BufferLoad) -> tuple[PrimExpr, ...]:
    return e.indices if e.predicate is None else (*e.indices, e.predicate)


_CHILDREN: dict[type, Callable[[Any], tuple[PrimExpr, ...]]] = {
    **dict.fromkeys(_BINARY, lambda e: (e.a, e.b)),
    **dict.fromkeys((Var, x.IntImm, x.FloatImm, x.StringImm), lambda _: ()),
    x.Not: lambda e: (e.a,),
    x.Cast: lambda e: (e.value,),
    x.Broadcast: lambda e: (e.value,),
    x.Select: lambda e: (e.condition, e.true_value, e.false_value),
    x.Ramp: lambda e: (e.base, e.stride),
    x.Shuffle: lambda e: e.vectors,
    x.Let: lambda e: (e.value, e.body),
    x.BufferLoad: _load_children,
    x.ProducerLoad: lambda e: e.indices,
    x.Call: lambda e: e.args,
    x.Reduce: lambda e: (*e.source, e.condition),
}


def children(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    """The direct sub-expressions, in order."""
    return _CHILDREN[type(expr)](expr)


def _make_load(e: x.BufferLoad, new: tuple[PrimExpr, ...]) -> PrimExpr:
    if e.predicate is None:
        return x.BufferLoad(e.buffer, new, None)
    return x.BufferLoad(e.buffer, new[:-1], new[-1])


def _make_call(e: x.Call, new: tuple[PrimExpr, ...]) -> PrimExpr:
    if e.name == "if_then_else":
        return x.if_then_else(*new)
    if e.name == "likely" and (new[0] is x.TRUE or new[0] is x.FALSE):
        return new[0]
    return x.Call(e.dtype, e.name, new)


_MAKE: dict[type, Callable[[Any, tuple[PrimExpr, ...]], PrimExpr]] = {
    **{node: (lambda _, c, make=make: make(*c)) for node, make in _BINARY.items()},
    x.Not: lambda _, c: x.not_(c[0]),
    x.Cast: lambda e, c: x.cast(c[0], e.dtype),
    x.Broadcast: lambda e, c: x.Broadcast(c[0], e.lanes),
    x.Select: lambda _, c: x.select(*c),
    x.Ramp: lambda e, c: x.Ramp(c[0], c[1], e.lanes),
    x.Shuffle: lambda e, c: x.Shuffle(c, e.indices),
    x.Let: lambda e, c: x.Let(e.var, c[0], c[1]),
    x.BufferLoad: _make_load,
    x.ProducerLoad: lambda e, c: x.ProducerLoad(e.producer, c),
    x.Call: _make_call,
    x.Reduce: lambda e, c: x.Reduce(e.combiner, c[:-1], e.axes, c[-1], e.index),
}


def with_children(expr: PrimExpr, new: tuple[PrimExpr, ...]) -> PrimExpr:
    """``expr`` with new sub-expressions; ``expr`` itself if they are identical to the old."""
    old = children(expr)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return expr
    return _MAKE[type(expr)](expr, new)


def map_children(expr: PrimExpr, fn: ExprFn) -> PrimExpr:
    """``expr`` with ``fn`` applied to each direct sub-expression."""
    kind = type(expr)
    make = _BINARY.get(kind)
    if make is not None:
        a, b = fn(expr.a), fn(expr.b)  # type: ignore[attr-defined]
        return expr if a is expr.a and b is expr.b else make(a, b)  # type: ignore[attr-defined]
    old = _CHILDREN[kind](expr)
    return with_children(expr, tuple(map(fn, old))) if old else expr


def post_order(expr: PrimExpr) -> Iterator[PrimExpr]:
    """Every distinct node, operands before users."""
    seen: set[PrimExpr] = set()
    stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(children(node)))


def nodes_of(expressions: Iterable[PrimExpr]) -> Iterator[PrimExpr]:
    """Every distinct node of several expressions, users before operands."""
    seen: set[PrimExpr] = set()
    for root in expressions:
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                yield node
                stack += _CHILDREN[type(node)](node)


def vars_of(expr: PrimExpr) -> set[Var]:
    """The variables that occur in ``expr``, bound or free."""
    return {e for e in nodes_of((expr,)) if isinstance(e, Var)}


def mentions(expr: PrimExpr, *variables: Var) -> bool:
    """Whether one of ``variables`` occurs in ``expr``."""
    return not set(variables).isdisjoint(nodes_of((expr,)))


def loads_from(expr: PrimExpr, buffer: Buffer) -> bool:
    """Whether ``expr`` loads an element of ``buffer``."""
    return any(type(e) is x.BufferLoad and e.buffer is buffer for e in nodes_of((expr,)))


def transform_expr(
    expr: PrimExpr, fn: ExprFn, memo: dict[PrimExpr, PrimExpr] | None = None
) -> PrimExpr:
    """Rewrite bottom-up: ``fn`` receives each node after its children were rewritten.

    If the condition of a select becomes constant, only the chosen side is visited. Calls with the
    same ``fn`` may share a ``memo``.
    """
    done: dict[PrimExpr, PrimExpr] = {} if memo is None else memo
    if expr in done:
        return done[expr]
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        kind = type(node)
        if kind in _BINARY:  # fast path for most nodes
            a, b = done.get(node.a), done.get(node.b)  # type: ignore[attr-defined]
            if a is None or b is None:
                stack.append(node.b if a is not None else node.a)  # type: ignore[attr-defined]
                continue
            same = a is node.a and b is node.b  # type: ignore[attr-defined]
            done[node] = fn(node if same else _BINARY[kind](a, b))
            continue
        if kind is x.Select:
            chosen = _chosen_side(node, done)  # type: ignore[arg-type]
            if chosen is not None:
                if chosen in done:
                    done[node] = done[chosen]
                else:
                    stack.append(chosen)
                continue
        waiting = [c for c in _CHILDREN[kind](node) if c not in done]
        if waiting:
            stack.extend(reversed(waiting))
        else:
            done[node] = fn(map_children(node, done.__getitem__))
    return done[expr]


def _chosen_side(node: x.Select, done: dict[PrimExpr, PrimExpr]) -> PrimExpr | None:
    """The operand to visit next: the condition, or the side that a constant condition chooses."""
    condition = done.get(node.condition)
    if condition is None:
        return node.condition
    taken = x.truth_of(condition)
    return None if taken is None else node.true_value if taken else node.false_value


def height(expr: PrimExpr, known: dict[PrimExpr, int]) -> int:
    """The height of ``expr`` as a tree; 0 for a leaf. ``known`` memoises heights across calls."""
    found = known.get(expr)
    if found is not None:
        return found
    stack = [expr]
    while stack:
        node = stack[-1]
        below = -1
        waiting = False
        for child in _CHILDREN[type(node)](node):
            levels = known.get(child)
            if levels is None:
                stack.append(child)
                waiting = True
            elif levels > below:
                below = levels
        if not waiting:
            known[node] = below + 1
            stack.pop()
    return known[expr]


def depth_checkpoints(
    expr: PrimExpr, heights: dict[PrimExpr, int] | None = None, spacing: int = 48
) -> list[PrimExpr]:
    """Sub-expressions at every ``spacing``-th level, operands first; empty for shallow expressions.

    A memoised recursive walk that visits these first never recurses deeper than ``spacing`` levels.
    Pass one table of ``heights`` for all expressions of a function.
    """
    heights = {} if heights is None else heights
    if height(expr, heights) < spacing - 1:
        return []
    return [node for node in post_order(expr) if heights[node] % spacing == spacing - 1]


def map_exprs(stmt: s.Stmt, fn: ExprFn) -> s.Stmt:
    """``stmt`` with ``fn`` applied to its own expressions, but not to nested statements."""
    match stmt:
        case s.BufferStore():
            mask = stmt.predicate
            indices = tuple(map(fn, stmt.indices))
            return stmt.replace(value=fn(stmt.value),
                                indices=stmt.indices if indices == stmt.indices else indices,
                                predicate=None if mask is None else fn(mask))
        case s.For():
            return stmt.replace(min=fn(stmt.min), extent=fn(stmt.extent))
        case s.IfThenElse():
            return stmt.replace(condition=fn(stmt.condition))
        case s.LetStmt() | s.Evaluate():
            return stmt.replace(value=fn(stmt.value))
        case s.AttrStmt() if isinstance(stmt.value, PrimExpr):
            return stmt.replace(value=fn(stmt.value))
    return stmt


def map_stmts(stmt: s.Stmt, fn: StmtFn) -> s.Stmt:
    """``stmt`` with ``fn`` applied to its direct child statements."""
    match stmt:
        case s.SeqStmt():
            new = tuple(map(fn, stmt.stmts))
            return stmt if new == stmt.stmts else s.seq(new)
        case s.IfThenElse():
            other = stmt.else_case
            return stmt.replace(
                then_case=fn(stmt.then_case), else_case=None if other is None else fn(other)
            )
        case s.For() | s.Allocate() | s.LetStmt() | s.AttrStmt():
            return stmt.replace(body=fn(stmt.body))
    return stmt


def transform_stmt(
    stmt: s.Stmt, fn_stmt: StmtFn | None = None, fn_expr: ExprFn | None = None
) -> s.Stmt:
    """Rewrite bottom-up: ``fn_stmt`` receives each statement after its children were rewritten.

    ``fn_expr`` receives each whole expression of a statement (an index, a value, a condition), not
    each node. Combine it with ``transform_expr`` to rewrite nodes.
    """

    def go(node: s.Stmt) -> s.Stmt:
        node = map_stmts(node, go)
        if fn_expr is not None:
            node = map_exprs(node, fn_expr)
        return node if fn_stmt is None else fn_stmt(node)

    return go(stmt)


def exprs_of(stmt: s.Stmt) -> Iterator[PrimExpr]:
    """The whole expressions of ``stmt`` itself, without those of nested statements."""
    match stmt:
        case s.BufferStore():
            yield from stmt.indices
            yield stmt.value
            if stmt.predicate is not None:
                yield stmt.predicate
        case s.For():
            yield stmt.min
            yield stmt.extent
        case s.IfThenElse():
            yield stmt.condition
        case s.LetStmt() | s.Evaluate():
            yield stmt.value
        case s.AttrStmt() if isinstance(stmt.value, PrimExpr):
            yield stmt.value


def stmts_of(stmt: s.Stmt) -> tuple[s.Stmt, ...]:
    """The direct child statements."""
    inside = _STATEMENTS_OF.get(type(stmt))
    return () if inside is None else inside(stmt)


# By type, not by pattern: every pass asks this of every statement, often several times.
_STATEMENTS_OF: dict[type, Callable[[Any], tuple[s.Stmt, ...]]] = {
    s.SeqStmt: lambda stmt: stmt.stmts,
    s.IfThenElse: lambda stmt: ((stmt.then_case,) if stmt.else_case is None
                                else (stmt.then_case, stmt.else_case)),
    **dict.fromkeys((s.For, s.Allocate, s.LetStmt, s.AttrStmt), lambda stmt: (stmt.body,)),
}


def post_order_stmts(stmt: s.Stmt) -> Iterator[s.Stmt]:
    """Every statement in program order, children before their parent."""
    stack: list[tuple[s.Stmt, bool]] = [(stmt, False)]
    while stack:
        node, ready = stack.pop()
        inside = stmts_of(node)
        if ready or not inside:
            yield node
        else:
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(inside))


def has_annotation(stmt: s.Stmt, key: str) -> bool:
    """Whether a loop in ``stmt`` has the annotation ``key``."""
    return any(isinstance(n, s.For) and key in n.annotations for n in post_order_stmts(stmt))


def without_annotation(loop: s.For, key: str) -> s.For:
    """``loop`` without the annotation ``key``."""
    return loop.replace(annotations={k: v for k, v in loop.annotations.items() if k != key})


def all_exprs(stmt: s.Stmt) -> Iterator[PrimExpr]:
    """Every distinct expression node in ``stmt``."""
    return nodes_of(root for node in post_order_stmts(stmt) for root in exprs_of(node))


@overload
def substitute(node: PrimExpr, values: Mapping[Var, PrimExpr]) -> PrimExpr: ...
@overload
def substitute(node: s.Stmt, values: Mapping[Var, PrimExpr]) -> s.Stmt: ...
def substitute(node: PrimExpr | s.Stmt, values: Mapping[Var, PrimExpr]) -> PrimExpr | s.Stmt:
    """``node`` with variables replaced by ``values``, constant-folded."""
    memo: dict[PrimExpr, PrimExpr] = {**values}

    def fn(e: PrimExpr) -> PrimExpr:
        return transform_expr(e, lambda leaf: leaf, memo)

    if isinstance(node, PrimExpr):
        return fn(node)
    return transform_stmt(node, None, fn)


def substitute_each(stmt: s.Stmt, var: Var, values: Iterable[PrimExpr]) -> list[s.Stmt]:
    """One copy of ``stmt`` per value of ``var``; shares the expressions that do not use ``var``."""
    fixed = _nodes_without(stmt, var)
    copies = []
    for value in values:
        memo = {**fixed, var: value}
        copies.append(transform_stmt(
            stmt, None, lambda e, memo=memo: transform_expr(e, lambda leaf: leaf, memo)))
    return copies


def _nodes_without(stmt: s.Stmt, var: Var) -> dict[PrimExpr, PrimExpr]:
    """The expression nodes of ``stmt`` that do not use ``var``, as an identity memo."""
    mentions: dict[PrimExpr, bool] = {var: True}
    stack = [root for node in post_order_stmts(stmt) for root in exprs_of(node)]
    while stack:
        node = stack[-1]
        inside = _CHILDREN[type(node)](node)
        waiting = [c for c in inside if c not in mentions]
        if node in mentions or not waiting:
            stack.pop()
            mentions.setdefault(node, any(mentions[c] for c in inside))
        else:
            stack.extend(waiting)
    return {node: node for node, found in mentions.items() if not found}


def replace_buffers(stmt: s.Stmt, buffers: Mapping[Buffer, Buffer]) -> s.Stmt:
    """``stmt`` with each key of ``buffers`` replaced by its value, in accesses and allocations."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def on_expr(e: PrimExpr) -> PrimExpr:
        if type(e) is x.BufferLoad and e.buffer in buffers:
            return x.BufferLoad(buffers[e.buffer], e.indices, e.predicate)
        return e

    def on_stmt(node: s.Stmt) -> s.Stmt:
        if isinstance(node, s.BufferStore | s.Allocate) and node.buffer in buffers:
            return node.replace(buffer=buffers[node.buffer])
        return node

    return transform_stmt(stmt, on_stmt, lambda e: transform_expr(e, on_expr, memo))


def map_body(func: PrimFunc, fn: StmtFn) -> PrimFunc:
    """``func`` with ``fn`` applied to its body."""
    return func.replace(body=fn(func.body))


def free_vars(node: PrimExpr | s.Stmt) -> list[Var]:
    """The free variables: used, but not bound by a loop or let inside, in order of first use."""
    roots = [node] if isinstance(node, PrimExpr) else list(all_exprs(node))
    bound: set[PrimExpr] = set()
    if not isinstance(node, PrimExpr):
        for inner in post_order_stmts(node):
            if isinstance(inner, s.For):
                bound.add(inner.loop_var)
            elif isinstance(inner, s.LetStmt):
                bound.add(inner.var)
    used: dict[PrimExpr, None] = {}
    for root in roots:
        for e in post_order(root) if isinstance(node, PrimExpr) else (root,):
            if type(e) is x.Let:
                bound.add(e.var)
            elif type(e) is Var:
                used[e] = None
    return [v for v in used if v not in bound]  # type: ignore[misc]
