"""Rewrite groups of independent calls, level by level."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from weft.ir import Call, Expr, Function, Let, children
from weft.transform.analysis.graph import as_function, enters, over_new_children
from weft.transform.analysis.scopes import Scopes

# A key that is equal for calls of one group; ``None`` for calls that are never grouped.
GroupKey: TypeAlias = Callable[[Call], Hashable | None]
# The calls of a group and their rewritten arguments -> their replacements.
Combine: TypeAlias = Callable[[Sequence[Call], Sequence[Sequence[Expr]]], Sequence[Expr]]


def rewrite_groups(fn: Function, key: GroupKey, combine: Combine, min_size: int) -> Function:
    """Replace groups of ``min_size`` or more calls by the result of ``combine``.

    Calls of a group have equal keys and the same scope and level (the length of the longest path
    to them from the inputs), so none depends on another one. Calls that depend on let-bound
    variables are left alone; run ``to_graph_normal_form`` first.
    """
    scopes = Scopes(fn)
    levels = _levels(scopes)
    groups = _groups(scopes, levels, key, min_size)
    if not groups:
        return fn
    memo: dict[Expr, Expr] = {}
    # Users are on higher levels than their operands, so a group comes after all its operands.
    for node in sorted(scopes.order, key=levels.__getitem__):
        if node in memo:
            continue
        group = groups.get(node)
        if group is None:
            memo[node] = over_new_children(node, memo.__getitem__)
        else:
            args = [[memo[a] for a in call.args] for call in group]
            memo.update(zip(group, combine(group, args), strict=True))
    return as_function(memo[fn])


def _levels(scopes: Scopes) -> dict[Expr, int]:
    levels: dict[Expr, int] = {}
    for node in scopes.order:
        operands = children(node) if enters(node) else ()
        levels[node] = 1 + max((levels[c] for c in operands), default=-1)
    return levels


def under_let(scopes: Scopes) -> set[Expr]:
    """Nodes that can be computed only where certain let-bound variables are in scope."""
    found: set[Expr] = {n.var for n in scopes.order if isinstance(n, Let)}
    for node in scopes.order:
        if enters(node) and any(c in found for c in children(node)):
            found.add(node)
    return found


def _groups(
    scopes: Scopes, levels: Mapping[Expr, int], key: GroupKey, min_size: int
) -> dict[Expr, list[Call]]:
    """The group of each call that belongs to one."""
    found: dict[Hashable, list[Call]] = {}
    named = under_let(scopes)
    for node in scopes.order:
        likeness = key(node) if isinstance(node, Call) and node not in named else None
        if likeness is not None and isinstance(node, Call):
            scope_id = id(scopes.scope_of[node]), levels[node]
            found.setdefault((scope_id, likeness), []).append(node)
    large = (group for group in found.values() if len(group) >= min_size)
    return {call: group for group in large for call in group}
