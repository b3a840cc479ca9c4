"""Convex regions of a graph: no path leaves a region and re-enters it."""

from __future__ import annotations

from weft.ir import Expr, Let, children, post_order
from weft.transform.analysis.graph import enters


def convex_regions(body: Expr, members: set[Expr]) -> list[list[Expr]]:
    """Connected convex subsets of ``members``, grown by merging along edges.

    Every node starts as a separate group. The two groups of an edge between members merge unless
    another path leads from one to the other, which would become a cycle. Each region is in
    post-order.
    """
    groups = _Groups(body)
    for node in groups.order:
        if node in members:
            for operand in children(node):
                if operand in members:
                    groups.try_merge(operand, node)
    found: dict[int, list[Expr]] = {}
    for node in groups.order:
        if node in members:
            found.setdefault(groups.find(groups.position[node]), []).append(node)
    return list(found.values())


class _Groups:
    """Union-find over positions in post-order, with the users of every group."""

    def __init__(self, body: Expr) -> None:
        self.order = list(post_order(body, enter=enters))
        self.position = {node: i for i, node in enumerate(self.order)}
        self.parent = list(range(len(self.order)))
        self.users: list[dict[int, None]] = [{} for _ in self.order]
        for node in self.order:
            for child in children(node) if enters(node) else ():
                self.users[self.position[child]][self.position[node]] = None
            if isinstance(node, Let):  # users of the variable depend on its value
                self.users[self.position[node.value]][self.position[node.var]] = None

    def find(self, group: int) -> int:
        while self.parent[group] != group:
            self.parent[group] = self.parent[self.parent[group]]
            group = self.parent[group]
        return group

    def try_merge(self, producer: Expr, user: Expr) -> None:
        first, second = self.find(self.position[producer]), self.find(self.position[user])
        if first == second or self._has_detour(first, second):
            return
        if len(self.users[first]) < len(self.users[second]):
            first, second = second, first
        self.parent[second] = first
        self.users[first].update(self.users[second])

    def _has_detour(self, first: int, second: int) -> bool:
        """Whether ``second`` is reached from ``first`` through a third group."""
        seen = {first, second}
        pending = [g for g in map(self.find, self.users[first]) if g not in seen]
        while pending:
            group = pending.pop()
            if group in seen:
                continue
            seen.add(group)
            for user in map(self.find, self.users[group]):
                if user == second:
                    return True
                if user not in seen:
                    pending.append(user)
        return False
