"""Exact tails: a version of a tile for each number of rows that a symbolic extent leaves over.

The rows of a register tile are an unrolled loop. In the last tile of a symbolic extent each row has
a guard, in the hot loop too. An unrolled loop with the pragma ``exact_tail`` is partitioned into
versions instead: the number of rows is compared once per tile, and no version has a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.simplify.linear import Linear
from weft.tir.stmt import Stmt
from weft.tir.visitor import map_stmts

EXACT_TAIL = "exact_tail"


def rows_that_hold(total: Linear, loop: s.For) -> Linear | None:
    """In how many iterations of ``loop``, the first ones, ``total >= 0`` holds.

    ``None`` unless ``total`` falls by 1 in each iteration.
    """
    if total.terms.get(loop.loop_var) != -1 or int_value(loop.min) != 0:
        return None
    return total.plus(Linear.of_atom(loop.loop_var)).plus(Linear.of_const(1))


def tail_versions(
    rows: Linear, extent: int, analyzer: Analyzer, version: Callable[[int], Stmt]
) -> Stmt:
    """``version(r)`` for each number of rows below ``extent``, under comparisons with ``rows``."""
    count = rows.to_expr()
    least = next((r for r in range(extent - 1, 0, -1) if analyzer.can_prove(count >= r)), 0)
    result: Stmt | None = None
    for r in range(least, extent):
        condition = analyzer.simplify(x.GE(count, const(r)))
        with analyzer.constraint(condition), analyzer.constraint(x.LE(count, const(r))):
            body = version(r)
        result = body if result is None else s.IfThenElse(condition, body, result)
    assert result is not None
    return result


def with_rows(body: Stmt, guards: Mapping[Var, PrimExpr], count: int) -> Stmt:
    """``body`` with ``count`` iterations of the loops whose whole body is under their guard."""

    def shorten(node: Stmt) -> Stmt:
        node = map_stmts(node, shorten)
        if not isinstance(node, s.For) or not isinstance(node.body, s.IfThenElse):
            return node
        guarded, predicate = node.body, guards.get(node.loop_var)
        is_whole = predicate is not None and guarded.else_case is None and guarded.condition is (
            x.call("bool", "likely", predicate))
        return node.replace(extent=const(count), body=guarded.then_case) if is_whole else node

    return shorten(body)
