"""The scope of a function in which each node is evaluated.

The body of a function, a branch and a clause are scopes. A node belongs to the innermost scope
that contains all of its uses, so that shared values are computed once and only where needed.
"""

from __future__ import annotations

from dataclasses import field

from weft.ir import Expr, Function, If, Let, Match, Var, children, post_order
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import enters


@dataclass(eq=False, slots=True)
class Scope:
    """A sequence of bindings; ``depth`` counts the enclosing scopes."""

    parent: Scope | None = None
    depth: int = 0
    bindings: list[tuple[Var, Expr]] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(self, self.depth + 1)

    def close(self, result: Expr) -> Expr:
        """``result`` inside the let bindings of this scope."""
        for var, value in reversed(self.bindings):
            result = Let(var, value, result, span=value.span, checked_type=result.checked_type)
        return result


class Scopes:
    """The scopes of ``body``; ``order`` is its post-order, ``scope_of`` maps every node.

    ``inner`` maps (node, position of the child) to the scope that the child opens; ``crossing``
    holds the nodes that a scope inside their own uses.
    """

    def __init__(self, body: Expr) -> None:
        self.order = list(post_order(body, enter=enters))
        self.root = Scope()
        self.inner: dict[tuple[Expr, int], Scope] = {}
        self.crossing: set[Expr] = set()
        self.scope_of: dict[Expr, Scope] = {body: self.root}
        uses: list[tuple[Expr, Scope]] = []
        for node in reversed(self.order):  # users before their operands
            self._place_children(node, uses)
        self.crossing.update(node for node, use in uses if self.scope_of[node] is not use)

    def _place_children(self, node: Expr, uses: list[tuple[Expr, Scope]]) -> None:
        scope = self.scope_of[node]
        for position, child in enumerate(children(node) if enters(node) else ()):
            use = scope
            if opens_scope(node, position):
                use = self.inner[node, position] = scope.inner()
            known = self.scope_of.get(child)
            self.scope_of[child] = use if known is None else common_scope(known, use)
            uses.append((child, use))


def opens_scope(node: Expr, position: int) -> bool:
    """Whether the child of ``node`` at ``position`` is evaluated in a new scope."""
    if isinstance(node, If):
        return position > 0
    if isinstance(node, Function):
        return position == len(node.params)
    return isinstance(node, Match) and position > 0


def common_scope(a: Scope, b: Scope) -> Scope:
    """The innermost scope that contains both."""
    while a is not b:
        if a.depth >= b.depth and a.parent is not None:
            a = a.parent
        elif b.parent is not None:
            b = b.parent
    return a
