"""Rewriting level by level: groups of calls that cannot depend on each other, all at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from weft.ir.expr import Call, Expr, Function, Let
from weft.ir.visitor import children
from weft.transform.analysis.graph import as_function, enters, over_new_children
from weft.transform.analysis.scopes import Scopes

# What makes calls of one group alike, ``None`` for calls that belong to none.
GroupKey: TypeAlias = Callable[[Call], Hashable | None]
# The calls of a group and their rewritten arguments -> what takes their places.
Combine: TypeAlias = Callable[[Sequence[Call], Sequence[Sequence[Expr]]], Sequence[Expr]]


def rewrite_groups(fn: Function, key: GroupKey, combine: Combine, min_size: int) -> Function:
    """Replace groups of ``min_size`` or more alike calls by what ``combine`` makes of them.

    Calls of a group have equal keys, belong to the same scope, and lie on the same level (the
    length of the longest path to them from the inputs), so that none depends on another one.
    Calls that depend on let-bound variables stay as they are; ``to_graph_normal_form`` comes first.
    """
    scopes = Scopes(fn)
    levels = _levels(scopes)
    groups = _groups(scopes, levels, key, min_size)
    if not groups:
        return fn
    memo: dict[Expr, Expr] = {}
    # Users lie on higher levels than what they use, so a group comes after all its operands.
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
    """What may be computed only where certain let-bound variables are in scope."""
    found: set[Expr] = {n.var for n in scopes.order if isinstance(n, Let)}
    for node in scopes.order:
        if enters(node) and any(c in found for c in children(node)):
            found.add(node)
    return found


def _groups(
    scopes: Scopes, levels: Mapping[Expr, int], key: GroupKey, min_size: int
) -> dict[Expr, list[Call]]:
    """Each call that belongs to a group, with that group."""
    found: dict[Hashable, list[Call]] = {}
    named = under_let(scopes)
    for node in scopes.order:
        likeness = key(node) if isinstance(node, Call) and node not in named else None
        if likeness is not None and isinstance(node, Call):
            place = id(scopes.scope_of[node]), levels[node]
            found.setdefault((place, likeness), []).append(node)
    large = (group for group in found.values() if len(group) >= min_size)
    return {call: group for group in large for call in group}
