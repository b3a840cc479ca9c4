"""Is a function in a normal form? Asked of what ``to_a_normal_form`` and its kin have made."""

from __future__ import annotations

from weft.ir.expr import Expr, Function, If, Let, Match
from weft.ir.visitor import children, post_order
from weft.transform.analysis.effects import ordered_nodes
from weft.transform.analysis.graph import enters
from weft.transform.analysis.scopes import Scopes
from weft.transform.normal_form.to_a_normal_form import is_atom


def is_a_normal_form(fn: Function) -> bool:
    """Whether every value that takes work is bound by ``let``, and operands are atoms."""
    return all(
        is_atom(part) or _is_block(node, position)
        for node in post_order(fn, enter=enters)
        if enters(node)
        for position, part in enumerate(children(node))
    )


def _is_block(node: Expr, position: int) -> bool:
    """Whether the child at ``position`` is a block, or a value that a name is given to."""
    if isinstance(node, Function):
        return position == len(node.params)
    return isinstance(node, Let) or (isinstance(node, (If, Match)) and position > 0)


def is_basic_block_normal_form(fn: Function) -> bool:
    """Whether what a scope uses of the scopes around it has a name (see ``Scopes``)."""
    return all(is_atom(node) for node in Scopes(fn.body).crossing)


def is_graph_normal_form(fn: Function) -> bool:
    """Whether names are given to effects and functions alone, and sharing stands for the rest."""
    order = list(post_order(fn, enter=enters))
    ordered = ordered_nodes(order)
    return all(node.value in ordered for node in order if isinstance(node, Let))
