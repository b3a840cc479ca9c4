"""Programs without lets: a graph of shared nodes, the form that sweeps work on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir import Expr, Let, Var, children, post_order, replace_children
from weft.support.errors import PassError
from weft.transform.analysis.effects import effectful_nodes
from weft.transform.analysis.graph import traits_of


def pure_graph(body: Expr) -> Expr:
    """``body`` without lets: every variable is replaced by the shared node of its value.

    Raises ``PassError`` for a ``let`` of an operator with a side effect: the graph orders effects
    by data and by ``annotation.barrier`` alone, and drops unused values.
    """
    order = list(post_order(body))
    value_of = {n.var: n.value for n in order if isinstance(n, Let)}
    _check_effects(value_of.values(), order)
    memo: dict[Expr, Expr] = {}
    for node in order:
        if isinstance(node, Let):
            memo[node] = memo[node.body]
        elif isinstance(node, Var) and node in value_of:
            memo[node] = node  # replaced by its value, which is visited later
        else:
            parts = [_resolved(c, memo, value_of) for c in children(node)]
            memo[node] = replace_children(node, parts)
    return _resolved(body, memo, value_of)


def _check_effects(values: Iterable[Expr], order: Sequence[Expr]) -> None:
    if not any(traits_of(node).has_effect for node in order):
        return
    effects = effectful_nodes(order)
    for value in values:
        if value in effects:
            raise PassError("let orders the side effect of an operator in a program that becomes "
                            "a graph", where=value.span,
                            help="run auto_control_dependencies before, or order it by a control "
                                 "edge: annotation.barrier(x, after)")


def _resolved(node: Expr, memo: dict[Expr, Expr], value_of: dict[Var, Expr]) -> Expr:
    while isinstance(node, (Var, Let)) and (isinstance(node, Let) or node in value_of):
        node = node.body if isinstance(node, Let) else value_of[node]
    return memo[node]
