"""Programs without lets: a graph of shared nodes, the form that sweeps work on."""

from __future__ import annotations

from weft.ir.expr import Expr, Let, Var
from weft.ir.visitor import children, post_order, replace_children


def pure_graph(body: Expr) -> Expr:
    """``body`` without lets: every variable is replaced by the shared node of its value.

    Valid for pure programs only, because unused values disappear.
    """
    order = list(post_order(body))
    value_of = {n.var: n.value for n in order if isinstance(n, Let)}
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


def _resolved(node: Expr, memo: dict[Expr, Expr], value_of: dict[Var, Expr]) -> Expr:
    while isinstance(node, (Var, Let)) and (isinstance(node, Let) or node in value_of):
        node = node.body if isinstance(node, Let) else value_of[node]
    return memo[node]
