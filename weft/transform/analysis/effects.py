"""Side effects of evaluating a node."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.expr import Call, Constructor, Expr, Function, RefCreate, RefRead, RefWrite
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.visitor import children, post_order
from weft.transform.analysis.graph import enters


class Effects:
    """Which nodes must keep their order of evaluation; memoized by node."""

    def __init__(self) -> None:
        self._ordered: dict[Expr, bool] = {}

    def is_ordered(self, expr: Expr) -> bool:
        """Whether ``expr`` touches references, calls a function that might, or makes a closure."""
        known = self._ordered
        for node in post_order(expr, enter=lambda n: n not in known and enters(n)):
            if node not in known:
                known[node] = enters(node) and (
                    has_effect(node) or any(known[child] for child in children(node))
                )
        return known[expr]


def touches_references(mod: IRModule) -> bool:
    """Whether any function of ``mod`` creates, reads or writes a reference."""
    nodes = (node for fn in mod.functions.values() for node in post_order(fn))
    return any(isinstance(node, (RefCreate, RefRead, RefWrite)) for node in nodes)


def ordered_nodes(order: Iterable[Expr]) -> set[Expr]:
    """The nodes of a post-order that must keep their order of evaluation."""
    found: set[Expr] = set()
    for node in order:
        if not enters(node):
            continue
        if has_effect(node) or any(child in found for child in children(node)):
            found.add(node)
    return found


def has_effect(node: Expr) -> bool:
    """Whether evaluating ``node`` alone may have a side effect, or creates a closure."""
    if isinstance(node, Call):
        return not isinstance(node.op, (Op, Constructor, Function))
    return isinstance(node, (RefCreate, RefRead, RefWrite, Function))
