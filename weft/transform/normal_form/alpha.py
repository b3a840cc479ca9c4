"""Alpha conversion: copies of expressions with fresh bound variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from weft.ir import Expr, Function, Var, binders, children, post_order, replace_children
from weft.transform.analysis.effects import has_effect
from weft.transform.analysis.graph import as_function


def fresh_var(var: Var) -> Var:
    """A new variable with the same name and type."""
    return dataclasses.replace(var)


def fresh_copy(expr: Expr, values: Mapping[Expr, Expr] | None = None) -> Expr:
    """Copy ``expr``, and replace every variable that it binds by a new one.

    ``values`` maps further nodes (free variables, for example) to replacements, which are not
    copied themselves. Types are kept. Subexpressions without such nodes stay shared with the
    original unless they have effects, because the copy must repeat its effects.
    """
    memo: dict[Expr, Expr] = dict(values or {})
    # Variables first: in post-order, uses come before the node that binds the variable.
    for node in post_order(expr, enter=lambda e: e not in memo):
        for var in binders(node):
            memo[var] = fresh_var(var)
    for node in post_order(expr, enter=lambda e: values is None or e not in values):
        if node not in memo:
            rebuilt = replace_children(node, [memo[c] for c in children(node)])
            is_shared = rebuilt is node
            memo[node] = dataclasses.replace(node) if is_shared and has_effect(node) else rebuilt
    return memo[expr]


def fresh_function(fn: Function) -> Function:
    """``fresh_copy`` of a function."""
    return as_function(fresh_copy(fn))
