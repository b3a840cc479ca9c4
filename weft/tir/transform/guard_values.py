"""Statements with guards replaced by their values."""

from __future__ import annotations

from collections.abc import Mapping

from weft.tir import expr as x
from weft.tir import visitor
from weft.tir.expr import Call, PrimExpr
from weft.tir.stmt import Stmt
from weft.tir.transform.guards import Guard


def decided(body: Stmt, guard: Guard, holds: bool) -> Stmt:
    """``body`` with the guard replaced by True or False."""
    return replaced(body, guard.predicate, x.TRUE if holds else x.FALSE)


def replaced(body: Stmt, predicate: PrimExpr, by: PrimExpr) -> Stmt:
    """``body`` with a comparison replaced by another expression."""
    return with_values(body, {predicate: by})


def with_values(body: Stmt, values: Mapping[PrimExpr, PrimExpr]) -> Stmt:
    """``body`` with the values of expressions in place."""
    memo = dict(values)
    return visitor.transform_stmt(body, None,
                                  lambda e: visitor.transform_expr(e, lambda node: node, memo))


def _without_hint(e: PrimExpr) -> PrimExpr:
    return e.args[0] if type(e) is Call and e.name == "likely" else e


def without_select_hints(body: Stmt) -> Stmt:
    """``body`` with plain conditions in ``if_then_else``.

    The versions of a tail are not split again at the borders of an image, which would multiply
    them.
    """

    def plain(e: PrimExpr) -> PrimExpr:
        if type(e) is not Call or e.name != "if_then_else":
            return e
        condition = visitor.transform_expr(e.args[0], _without_hint, {})
        return Call(e.dtype, e.name, (condition, *e.args[1:]))

    memo: dict[PrimExpr, PrimExpr] = {}
    return visitor.transform_stmt(body, None, lambda e: visitor.transform_expr(e, plain, memo))
