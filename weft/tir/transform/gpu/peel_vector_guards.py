"""Tests the guards of a vectorized loop once for all lanes.

A thread has no masked accesses, so a guard inside a vectorized loop would split its loads and
stores into lanes. A guard that is linear in the lane holds in all lanes if it holds in the first
and in the last one. Threads for which it holds in all lanes run vectors; the others run the loop
lane by lane.
"""

from __future__ import annotations

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import Call, PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.visitor import mentions, substitute


def peel_vector_guards(func: PrimFunc) -> PrimFunc:
    """Put guards in front of vectorized loops.

    for i in range(10):
        for j in vectorized(4):
            if likely(i * 4 + j < 37):
                A[i * 4 + j] = 0.0
    =>
    for i in range(10):
        if likely(i < 9):
            for j in vectorized(4):
                A[i * 4 + j] = 0.0
        else:
            for j in range(4):
                if likely(i * 4 + j < 37):
                    A[i * 4 + j] = 0.0
    """
    return func.replace(body=_Peeler(func).visit(func.body))


class _Peeler(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        lanes, guard = int_value(node.extent), node.body
        if node.kind is not ForKind.VECTORIZED or lanes is None or lanes < 2 \
                or not isinstance(guard, s.IfThenElse) or guard.else_case is not None \
                or not mentions(guard.condition, node.loop_var) \
                or not _is_linear(guard.condition, node.loop_var, self.analyzer):
            return super().loop(node)
        first = _at(guard.condition, node.loop_var, node.min)
        last = _at(guard.condition, node.loop_var, node.min + (lanes - 1))
        whole = self.expr(x.all_of(first, last))
        vector = super().loop(node.replace(body=guard.then_case))
        if whole is x.TRUE:
            return vector
        with self.analyzer.constraint(first):
            always = self.analyzer.can_prove(_plain(last))
        if always:  # all lanes or none, as where the vectors divide the extent
            return s.IfThenElse(x.call("bool", "likely", whole), vector)
        rest = super().loop(node.replace(kind=ForKind.SERIAL))
        return s.IfThenElse(x.call("bool", "likely", whole), vector, rest)


def _at(condition: PrimExpr, var: Var, value: PrimExpr) -> PrimExpr:
    return _plain(substitute(condition, {var: value}))


def _plain(condition: PrimExpr) -> PrimExpr:
    """A condition without hints."""
    if type(condition) is Call and condition.name == "likely":
        return _plain(condition.args[0])
    if type(condition) is x.And:
        return x.all_of(_plain(condition.a), _plain(condition.b))
    return condition


def _is_linear(condition: PrimExpr, var: Var, analyzer: Analyzer) -> bool:
    """Whether a condition is a conjunction of comparisons whose sides are linear in ``var``."""
    plain = _plain(condition)
    if type(plain) is x.And:
        return _is_linear(plain.a, var, analyzer) and _is_linear(plain.b, var, analyzer)
    if not isinstance(plain, x.LT | x.LE | x.GT | x.GE) or not plain.a.dtype.is_int:
        return False
    difference = plain.a - plain.b
    step = analyzer.simplify(substitute(difference, {var: var + const(1, var.dtype)}) - difference)
    return int_value(step) is not None
