"""Side effects of evaluating a node."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.expr import Call, Constructor, Expr, Function, RefCreate, RefRead, RefWrite
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.visitor import children, post_order
from weft.transform.analysis.graph import enters, traits_of


class Effects:
    """Which nodes must keep their order of evaluation; memoized by node."""

    def __init__(self) -> None:
        self._ordered: dict[Expr, bool] = {}

    def is_ordered(self, expr: Expr) -> bool:
        """Whether ``expr`` has effects, calls a function that might, or makes a closure."""
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
        if isinstance(node.op, Op):
            return node.op.traits.has_effect
        return not isinstance(node.op, (Constructor, Function))
    return isinstance(node, (RefCreate, RefRead, RefWrite, Function))


def effectful_nodes(order: Iterable[Expr]) -> set[Expr]:
    """The nodes of a post-order whose evaluation may have a side effect that others see.

    Creating a closure or a reference never has, nor does reading a reference.
    """
    found: set[Expr] = set()
    bodies: set[Expr] = set()  # functions whose call has an effect
    for node in order:
        inner = any(child in found for child in children(node))
        if isinstance(node, Function):
            if inner:
                bodies.add(node)
        elif (inner or isinstance(node, RefWrite) or traits_of(node).has_effect
              or _calls_the_unknown(node, bodies)):
            found.add(node)
    return found


def _calls_the_unknown(node: Expr, effectful_functions: set[Expr]) -> bool:
    if not isinstance(node, Call) or isinstance(node.op, (Op, Constructor)):
        return False
    return not isinstance(node.op, Function) or node.op in effectful_functions
