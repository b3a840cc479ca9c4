"""Partition a program: move the matches of a pattern into functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.ir.expr import Call, Constant, Expr, Function, Var
from weft.ir.op import Op
from weft.ir.rewrite.matcher import Found, Users, find
from weft.ir.rewrite.pattern import Term
from weft.ir.visitor import binders, children, post_order, rebuild
from weft.support.dataclass import dataclass

SOURCE_ATTR = "PartitionedFromPattern"


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The nodes of one match, after their operands; the last is its root."""

    nodes: tuple[Expr, ...]
    inputs: tuple[Expr, ...]


def partition(expr: Expr, pattern: Term, *, attrs: Mapping[str, Any] | None = None,
              check: Callable[[Expr], bool] | None = None) -> Expr:
    """``expr`` with every match of ``pattern`` moved into a function that is called there.

    The nodes that the pattern spells out, constants included, move inside; the matches of ``any_``
    and ``var_`` become parameters. Matches closer to the result take precedence, and matches do
    not overlap. A match is left alone if its inner values have other uses or ``check`` rejects its
    root. The functions carry ``attrs``, and their operators as ``PartitionedFromPattern``.
    """
    groups = _groups(expr, pattern, check)
    if not groups:
        return expr
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        group = groups.get(id(node))
        if group is None:
            parts = children(node)
            memo[id(node)] = rebuild(node, [memo[id(p)] for p in parts]) if parts else node
        else:
            made = _function(group, dict(attrs or {}))
            args = tuple(memo[id(i)] for i in group.inputs)
            memo[id(node)] = Call(made, args, span=node.span)
    return memo[id(expr)]


def _groups(root: Expr, pattern: Term, check: Callable[[Expr], bool] | None) -> dict[int, _Group]:
    users = Users(root)
    order = list(post_order(root))
    taken: set[int] = set()
    groups: dict[int, _Group] = {}
    for node in reversed(order):
        if id(node) in taken:
            continue
        for found in find(pattern, node, users):
            group = _group(found, node, users, taken)
            if group is not None and (check is None or check(node)):
                taken.update(id(n) for n in group.nodes if not isinstance(n, Constant))
                groups[id(node)] = group
                break
    return groups


def _group(found: Found, root: Expr, users: Users, taken: set[int]) -> _Group | None:
    inside = {id(n) for n in found.nodes()}
    if not inside or id(root) not in inside or inside & taken:
        return None
    nodes = [n for n in post_order(root, enter=lambda n: id(n) in inside) if id(n) in inside]
    bound = {id(v) for n in nodes for v in binders(n)}
    inputs: dict[int, Expr] = {}
    for node in nodes:
        shared = node is not root and not isinstance(node, Constant)
        if shared and any(id(u) not in inside for u in users.of(node)):
            return None
        for part in children(node):
            if id(part) not in inside and id(part) not in bound:
                inputs[id(part)] = part
    return _Group(tuple(nodes), tuple(inputs.values()))


def _function(group: _Group, attrs: dict[str, Any]) -> Function:
    params = [
        Var(p.name if isinstance(p, Var) else f"p{i}", p.checked_type, span=p.span)
        for i, p in enumerate(group.inputs)
    ]
    values: dict[int, Expr] = {id(i): p for i, p in zip(group.inputs, params, strict=True)}
    inside = {id(n) for n in group.nodes}
    root = group.nodes[-1]
    memo: dict[int, Expr] = {}
    for node in post_order(root, enter=lambda n: id(n) in inside):
        if id(node) in values:
            memo[id(node)] = values[id(node)]
        elif id(node) in inside and children(node):
            memo[id(node)] = rebuild(node, [memo[id(c)] for c in children(node)])
        else:
            memo[id(node)] = node
    names = [n.op.name for n in group.nodes if isinstance(n, Call) and isinstance(n.op, Op)]
    known = {SOURCE_ATTR: "".join(f"{name}_" for name in names), **attrs}
    return Function(tuple(params), memo[id(root)], root.checked_type, attrs=known)
