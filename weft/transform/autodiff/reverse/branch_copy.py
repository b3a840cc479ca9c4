"""Copies of the values of a branch, for a branch that computes them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from weft.ir import Expr, children, post_order, replace_children


def copied_branch(
    expr: Expr, inside: AbstractSet[Expr], is_outside: Callable[[Expr], bool]
) -> Expr:
    """``expr`` with a copy of every node of ``inside``.

    A node that two branches share belongs to the scope around both, and is evaluated whichever
    branch is taken. Nodes that ``is_outside`` selects are not copied, nor are the nodes they depend
    on.
    """
    memo: dict[Expr, Expr] = {}
    for node in post_order(expr, enter=lambda n: not is_outside(n)):
        if is_outside(node):
            memo[node] = node
            continue
        rebuilt = replace_children(node, [memo[c] for c in children(node)])
        is_copy = rebuilt is not node or node not in inside
        memo[node] = rebuilt if is_copy else dataclasses.replace(node)
    return memo[expr]
