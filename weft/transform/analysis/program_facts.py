"""The facts that weft's passes provide and need, with the predicates that look them up."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import (
    Call,
    Expr,
    Function,
    If,
    IRModule,
    Let,
    Match,
    Op,
    children,
    post_order,
    register_fact,
)
from weft.ir.analysis import CallGraph
from weft.transform.analysis.effects import ordered_nodes, touches_references
from weft.transform.analysis.graph import enters, is_primitive, traits_of
from weft.transform.analysis.higher_order import is_higher_order
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


def _each(holds: Callable[[Function], bool]) -> Callable[[IRModule], bool]:
    """Whether every function that is not a kernel has a property."""
    return lambda mod: all(holds(fn) for fn in mod.functions.values() if not is_primitive(fn))


def _is_first_order(mod: IRModule) -> bool:
    names = mod.functions if "main" not in mod else CallGraph(mod).reachable("main")
    return not any(is_higher_order(mod[name]) for name in names if name in mod)


def _in_kernels(fn: Function) -> bool:
    """Whether only primitive functions call operators, apart from annotations."""
    return not any(isinstance(node, Call) and isinstance(node.op, Op)
                   and not traits_of(node).is_annotation
                   for node in post_order(fn, enter=enters))


register_fact("graph_normal_form", "whose let bindings are effects and functions alone",
              _each(is_graph_normal_form))
register_fact("a_normal_form", "where let binds every computed value", _each(is_a_normal_form))
register_fact("basic_block_normal_form", "where let binds what inner scopes use",
              _each(is_basic_block_normal_form))
register_fact("monomorphic", "without generic functions",
              _each(lambda fn: not fn.type_params))
register_fact("first_order", "without functions as values", _is_first_order)
register_fact("no_references", "without references", lambda mod: not touches_references(mod))
register_fact("kernels", "whose operators are in primitive functions", _each(_in_kernels))
