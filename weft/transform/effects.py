"""What the evaluation of a node may do besides giving a value."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir.expr import Call, Constructor, Expr, Function, RefCreate, RefRead, RefWrite
from weft.ir.op import Op
from weft.ir.visitor import children
from weft.transform.graph import enters


def ordered_nodes(order: Iterable[Expr]) -> set[Expr]:
    """Nodes (of a post-order) whose place in the order of evaluation matters.

    They touch references, call functions that might, or make functions.
    """
    found: set[Expr] = set()
    for node in order:
        if not enters(node):
            continue
        if _is_ordered(node) or any(child in found for child in children(node)):
            found.add(node)
    return found


def _is_ordered(node: Expr) -> bool:
    if isinstance(node, Call):
        return not isinstance(node.op, (Op, Constructor, Function))
    return isinstance(node, (RefCreate, RefRead, RefWrite, Function))
