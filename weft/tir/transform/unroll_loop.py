"""Unrolls loops marked ``unrolled``: the body is copied for each iteration."""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import map_body, map_stmts, substitute_each


def _unroll(node: Stmt) -> Stmt:
    node = map_stmts(node, _unroll)
    if not isinstance(node, s.For) or node.kind is not ForKind.UNROLLED:
        return node
    extent = int_value(node.extent)
    if extent is None:
        reason = {"not_unrolled": "its extent is not a constant"}
        return node.replace(kind=ForKind.SERIAL, annotations={**node.annotations, **reason})
    values = (node.min + const(i) for i in range(extent))
    return s.seq(substitute_each(node.body, node.loop_var, values))


def unroll_loop(func: PrimFunc) -> PrimFunc:
    """Replace each unrolled loop by its iterations in sequence.

    for i in unrolled(3):
        A[i * 2] = 1.0
    =>
    A[0] = 1.0
    A[2] = 1.0
    A[4] = 1.0
    """
    return map_body(func, _unroll)
