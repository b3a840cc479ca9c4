"""Side effects of evaluating a node."""

from __future__ import annotations

from collections.abc import Iterable

from weft import ir
from weft.transform.analysis.graph import enters, traits_of


class Effects:
    """Which nodes must keep their order of evaluation; memoized by node."""

    def __init__(self) -> None:
        self._ordered: dict[ir.Expr, bool] = {}

    def is_ordered(self, expr: ir.Expr) -> bool:
        """Whether ``expr`` has effects, calls a function that might, or makes a closure."""
        known = self._ordered
        for node in ir.post_order(expr, enter=lambda n: n not in known and enters(n)):
            if node not in known:
                known[node] = enters(node) and (
                    has_effect(node) or any(known[child] for child in ir.children(node))
                )
        return known[expr]


def touches_references(mod: ir.IRModule) -> bool:
    """Whether any function of ``mod`` creates, reads or writes a reference."""
    nodes = (node for fn in mod.functions.values() for node in ir.post_order(fn))
    return any(isinstance(node, (ir.RefCreate, ir.RefRead, ir.RefWrite)) for node in nodes)


def ordered_nodes(order: Iterable[ir.Expr]) -> set[ir.Expr]:
    """The nodes of a post-order that must keep their order of evaluation."""
    found: set[ir.Expr] = set()
    for node in order:
        if not enters(node):
            continue
        if has_effect(node) or any(child in found for child in ir.children(node)):
            found.add(node)
    return found


def has_effect(node: ir.Expr) -> bool:
    """Whether evaluating ``node`` alone may have a side effect, or creates a closure."""
    if isinstance(node, ir.Call):
        if isinstance(node.op, ir.Op):
            return node.op.traits.has_effect
        return not isinstance(node.op, (ir.Constructor, ir.Function))
    return isinstance(node, (ir.RefCreate, ir.RefRead, ir.RefWrite, ir.Function))


def effectful_nodes(order: Iterable[ir.Expr]) -> set[ir.Expr]:
    """The nodes of a post-order whose evaluation may have a side effect visible to others.

    Creating a closure or a reference has none, nor has reading a reference.
    """
    found: set[ir.Expr] = set()
    bodies: set[ir.Expr] = set()  # functions whose call has an effect
    for node in order:
        inner = any(child in found for child in ir.children(node))
        if isinstance(node, ir.Function):
            if inner:
                bodies.add(node)
        elif (inner or isinstance(node, ir.RefWrite) or traits_of(node).has_effect
              or _calls_the_unknown(node, bodies)):
            found.add(node)
    return found


def _calls_the_unknown(node: ir.Expr, effectful_functions: set[ir.Expr]) -> bool:
    if not isinstance(node, ir.Call) or isinstance(node.op, (ir.Op, ir.Constructor)):
        return False
    return not isinstance(node.op, ir.Function) or node.op in effectful_functions
