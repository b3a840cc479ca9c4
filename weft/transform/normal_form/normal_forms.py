"""Predicates: whether a function is in a normal form."""

from __future__ import annotations

from weft.ir import Expr, Function, If, Let, Match, children, post_order
from weft.transform.analysis.effects import ordered_nodes
from weft.transform.analysis.graph import enters
from weft.transform.analysis.scopes import Scopes
from weft.transform.normal_form.to_a_normal_form import is_atom


def is_a_normal_form(fn: Function) -> bool:
    """Whether ``let`` binds every computed value, and all operands are atoms."""
    return all(
        is_atom(part) or _is_block(node, position)
        for node in post_order(fn, enter=enters)
        if enters(node)
        for position, part in enumerate(children(node))
    )


def _is_block(node: Expr, position: int) -> bool:
    """Whether the child at ``position`` is a block, or the value of a binding."""
    if isinstance(node, Function):
        return position == len(node.params)
    return isinstance(node, Let) or (isinstance(node, (If, Match)) and position > 0)


def is_basic_block_normal_form(fn: Function) -> bool:
    """Whether every value that an inner scope uses from an outer one has a name (``Scopes``)."""
    return all(is_atom(node) for node in Scopes(fn.body).crossing)


def is_graph_normal_form(fn: Function) -> bool:
    """Whether ``let`` binds only effects and functions, and other values are shared nodes."""
    order = list(post_order(fn, enter=enters))
    ordered = ordered_nodes(order)
    return all(node.value in ordered for node in order if isinstance(node, Let))
