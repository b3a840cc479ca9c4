"""Copies of expressions with variables of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from weft.ir.expr import Expr, Function, Var
from weft.ir.visitor import binders, children, post_order, replace_children
from weft.transform.analysis.effects import has_effect
from weft.transform.analysis.graph import as_function


def fresh_var(var: Var) -> Var:
    """A new variable of the same name and type."""
    return dataclasses.replace(var)


def fresh_copy(expr: Expr, values: Mapping[Expr, Expr] | None = None) -> Expr:
    """``expr`` with every variable that it binds replaced by a new one.

    ``values`` replaces further nodes (free variables, say), which are not looked into. Types are
    kept. Parts that hold neither stay shared with the original, unless they have effects: the copy
    has effects of its own.
    """
    memo: dict[Expr, Expr] = dict(values or {})
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
