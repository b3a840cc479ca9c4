"""Walking and rebuilding expressions without recursion.

A program is a DAG that may be hundreds of thousands of nodes deep, so every walk uses an explicit
stack. Each shared node is visited once; memo tables are keyed by identity.

The children of a node include the variables it binds (parameters, let variables, pattern
variables), before the expressions in their scope. The ``Op`` of a call is not a child.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft.ir.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from weft.ir.op import Op
from weft.support.errors import InternalError

Enter = Callable[[Expr], bool]


def pattern_vars(pattern: Pattern) -> tuple[Var, ...]:
    """The variables that a match pattern binds, left to right."""
    found: list[Var] = []
    pending = [pattern]
    while pending:
        current = pending.pop()
        if isinstance(current, PatternVar):
            found.append(current.var)
        elif isinstance(current, (PatternConstructor, PatternTuple)):
            pending.extend(reversed(current.patterns))
    return tuple(found)


def _no_children(_: Any) -> tuple[Expr, ...]:
    return ()


def _call_children(call: Call) -> tuple[Expr, ...]:
    return call.args if isinstance(call.op, Op) else (call.op, *call.args)


def _match_children(match: Match) -> tuple[Expr, ...]:
    found: list[Expr] = [match.data]
    for clause in match.clauses:
        found.extend(pattern_vars(clause.lhs))
        found.append(clause.rhs)
    return tuple(found)


_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Op: _no_children,
    Var: _no_children,
    GlobalVar: _no_children,
    Constant: _no_children,
    Constructor: _no_children,
    Call: _call_children,
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    Function: lambda e: (*e.params, e.body),
    Let: lambda e: (e.var, e.value, e.body),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    RefCreate: lambda e: (e.value,),
    RefRead: lambda e: (e.ref,),
    RefWrite: lambda e: (e.ref, e.value),
    Match: _match_children,
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, binders included, in order of evaluation."""
    try:
        return _CHILDREN[type(expr)](expr)
    except KeyError:
        raise InternalError(f"not an expression of the IR: {type(expr).__name__}") from None


def binders(expr: Expr) -> tuple[Var, ...]:
    """The variables that ``expr`` itself binds."""
    if isinstance(expr, Function):
        return expr.params
    if isinstance(expr, Let):
        return (expr.var,)
    if isinstance(expr, Match):
        return tuple(v for clause in expr.clauses for v in pattern_vars(clause.lhs))
    return ()


def evaluated(expr: Expr) -> tuple[Expr, ...]:
    """``children`` without the variables bound here: the evaluated subexpressions."""
    if isinstance(expr, Function):
        return (expr.body,)
    if isinstance(expr, Let):
        return (expr.value, expr.body)
    if isinstance(expr, Match):
        return (expr.data, *(clause.rhs for clause in expr.clauses))
    return children(expr)


def post_order(expr: Expr, *, enter: Enter | None = None) -> Iterator[Expr]:
    """Every node once, after its operands.

    If ``enter`` is false for a node, the walk yields it but does not enter its children.
    """
    done: dict[int, bool] = {}
    stack = [expr]
    while stack:
        node = stack[-1]
        state = done.get(id(node))
        if state is None:
            done[id(node)] = False
            if enter is None or enter(node):
                stack.extend(c for c in reversed(children(node)) if id(c) not in done)
        else:
            stack.pop()
            if not state:
                done[id(node)] = True
                yield node


def rebuild(expr: Expr, parts: Sequence[Expr], **changes: Any) -> Expr:
    """``expr`` with ``parts`` for ``children(expr)``; ``expr`` itself if all are identical.

    ``changes`` sets further fields (``checked_type``). By default the new node is untyped.
    """
    old = children(expr)
    same = len(old) == len(parts) and all(a is b for a, b in zip(old, parts, strict=True))
    if not same:
        changes = {**_REBUILD[type(expr)](expr, tuple(parts)), **changes}
        changes.setdefault("checked_type", None)
    return dataclasses.replace(expr, **changes) if changes else expr


def replace_children(node: Expr, parts: Sequence[Expr]) -> Expr:
    """``node`` over new children of equal types, keeping its type; itself if all are identical."""
    if all(a is b for a, b in zip(children(node), parts, strict=True)):
        return node
    return rebuild(node, parts, checked_type=node.checked_type)


def _call_fields(call: Call, parts: tuple[Expr, ...]) -> dict[str, Any]:
    return {"args": parts} if isinstance(call.op, Op) else {"op": parts[0], "args": parts[1:]}


def _binder(part: Expr) -> Var:
    if not isinstance(part, Var):
        raise InternalError(
            "a binding variable was replaced by another expression",
            expected="a variable",
            got=type(part).__name__,
            help="replace the node that binds it as well",
        )
    return part


def _match_fields(match: Match, parts: tuple[Expr, ...]) -> dict[str, Any]:
    rest = iter(parts)
    data = next(rest)
    clauses = []
    for clause in match.clauses:
        renamed = {v: _binder(next(rest)) for v in pattern_vars(clause.lhs)}
        clauses.append(Clause(_rename_pattern(clause.lhs, renamed), next(rest)))
    return {"data": data, "clauses": tuple(clauses)}


def _rename_pattern(pattern: Pattern, renamed: Mapping[Var, Var]) -> Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, PatternVar):
        return PatternVar(renamed[pattern.var])
    if isinstance(pattern, PatternConstructor):
        inner = tuple(_rename_pattern(p, renamed) for p in pattern.patterns)
        return PatternConstructor(pattern.constructor, inner)
    if isinstance(pattern, PatternTuple):
        return PatternTuple(tuple(_rename_pattern(p, renamed) for p in pattern.patterns))
    return pattern


_REBUILD: dict[type, Callable[[Any, tuple[Expr, ...]], dict[str, Any]]] = {
    Call: _call_fields,
    Tuple: lambda _, parts: {"fields": parts},
    TupleGetItem: lambda _, parts: {"tuple_value": parts[0]},
    Function: lambda _, parts: {"params": tuple(map(_binder, parts[:-1])), "body": parts[-1]},
    Let: lambda _, parts: {"var": _binder(parts[0]), "value": parts[1], "body": parts[2]},
    If: lambda _, parts: {
        "cond": parts[0],
        "true_branch": parts[1],
        "false_branch": parts[2],
    },
    RefCreate: lambda _, parts: {"value": parts[0]},
    RefRead: lambda _, parts: {"ref": parts[0]},
    RefWrite: lambda _, parts: {"ref": parts[0], "value": parts[1]},
    Match: _match_fields,
}


def rewrite_post_order(
    expr: Expr, fn: Callable[[Expr], Expr], *, enter: Enter | None = None
) -> Expr:
    """Replace every node by ``fn`` of it, in post-order.

    ``fn`` is called once per node, with the node over its replaced operands, and returns it to
    leave it unchanged. Unchanged subexpressions keep their identity and types.
    """
    memo: dict[int, Expr] = {}
    for node in post_order(expr, enter=enter):
        rebuilt = node
        if enter is None or enter(node):
            parts = children(node)
            if parts:
                rebuilt = rebuild(node, [memo[id(c)] for c in parts])
        memo[id(node)] = fn(rebuilt)
    return memo[id(expr)]


def free_vars(expr: Expr) -> tuple[Var, ...]:
    """Variables used but not bound in ``expr``, in order of first use."""
    bound: set[int] = set()
    used: dict[int, Var] = {}
    for node in post_order(expr):
        bound.update(id(v) for v in binders(node))
        if isinstance(node, Var):
            used[id(node)] = node
    return tuple(v for key, v in used.items() if key not in bound)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace free variables. Variables are unique, so capture is impossible."""
    if not values:
        return expr
    return rewrite_post_order(expr, lambda e: values.get(e, e) if isinstance(e, Var) else e)


def count_uses(expr: Expr) -> dict[Expr, int]:
    """The number of uses of each node as an operand or result of a block; binding is not a use.

    The root counts as used once.
    """
    uses: dict[Expr, int] = {expr: 1}
    for node in post_order(expr):
        for part in evaluated(node):
            uses[part] = uses.get(part, 0) + 1
    return uses
