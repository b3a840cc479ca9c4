"""Which values of an expression depend on the variables of interest (Griewank and Walther 2008)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from weft.ir import Call, Expr, Op, Type, Var
from weft.ir.visitor import evaluated
from weft.transform.analysis.graph import known_type


def active_nodes(
    order: Iterable[Expr], passive: Container[Expr], is_float: Callable[[Type | None], bool]
) -> set[Expr]:
    """The nodes of a post-order that hold floats and depend on a variable not in ``passive``."""
    found: set[Expr] = set()
    for node in order:
        if isinstance(node, Var):
            if node not in passive and is_float(known_type(node)):
                found.add(node)
        elif any(c in found for c in evaluated(node)) and (
                is_float(known_type(node)) and not _ends_derivative(node)):
            found.add(node)
    return found


def _ends_derivative(node: Expr) -> bool:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return False
    return node.op.traits.has_zero_gradient and node.op.gradient_rule is None
