"""Tests that reject most expressions before a pattern is matched.

The test of a pattern compares kinds of nodes, operators and numbers of operands all the way down.
It leaves captured names, attributes, values of constants and conditions to the matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.rewrite import pattern

# Whether a pattern may match an expression; ``None`` where it may match any.
Test = Callable[[Expr], bool]


def quick_test(term: pattern.Term) -> Test | None:
    """A test that all expressions that ``term`` matches pass; ``None`` if there is none."""
    make = _TESTS.get(type(term))
    return None if make is None else make(term)


def _is_a(kind: type[Expr]) -> Callable[[Any], Test]:
    def test(expr: Expr) -> bool:
        return isinstance(expr, kind)

    return lambda _: test


def _call(term: pattern.CallTerm) -> Test:
    return _call_of(term.op, term.args)


def _one_of(term: pattern.OneOfTerm) -> Test:
    fits = {op: _operands(term.args, swapped=op.traits.is_commutative) for op in term.ops}

    def test(expr: Expr) -> bool:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return False
        found = fits.get(expr.op)
        return found is not None and found(expr.args)

    return test


def _call_of(op: Op, terms: Sequence[pattern.Term]) -> Test:
    fits = _operands(terms, swapped=op.traits.is_commutative)
    return lambda expr: isinstance(expr, Call) and expr.op is op and fits(expr.args)


def _call_where(term: pattern.TraitTerm) -> Test:
    holds = term.holds
    in_order, in_any_order = (_operands(term.args, swapped=swapped) for swapped in (False, True))

    def test(expr: Expr) -> bool:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not holds(expr.op.traits):
            return False
        return (in_any_order if expr.op.traits.is_commutative else in_order)(expr.args)

    return test


def _operands(terms: Sequence[pattern.Term], *, swapped: bool
              ) -> Callable[[Sequence[Expr]], bool]:
    count = len(terms)
    tests = [(i, test) for i, term in enumerate(terms) if (test := quick_test(term)) is not None]
    if not tests:
        return lambda args: len(args) == count
    if len(tests) == 1:
        index, only = tests[0]
        other = count - 1 - index if swapped else index
        return lambda args: len(args) == count and (
            only(args[index]) or (other != index and only(args[other])))

    def fits(args: Sequence[Expr]) -> bool:
        if len(args) != count:
            return False
        return all(test(args[i]) for i, test in tests) or (
            swapped and all(test(args[count - 1 - i]) for i, test in tests))

    return fits


def _apply(term: pattern.ApplyTerm) -> Test:
    callee = term.callee.expr if isinstance(term.callee, pattern.ExprTerm) else None
    if not isinstance(callee, Op):
        return lambda expr: isinstance(expr, Call)
    if term.args is None:
        return lambda expr: isinstance(expr, Call) and expr.op is callee
    return _call_of(callee, term.args)


def _alternatives(term: pattern.AltTerm) -> Test | None:
    tests = [quick_test(option) for option in term.options]
    known = [test for test in tests if test is not None]
    return _either(known) if len(known) == len(tests) else None


def _either(tests: Sequence[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]
    first, *others = tests
    other = _either(others)
    return lambda expr: first(expr) or other(expr)


def _field(term: pattern.FieldTerm) -> Test:
    inside, index = quick_test(term.value), term.index

    def test(expr: Expr) -> bool:
        if not isinstance(expr, TupleGetItem) or index not in (None, expr.index):
            return False
        return inside is None or inside(expr.tuple_value)

    return test


_TESTS: dict[type[pattern.Term], Callable[[Any], Test | None]] = {
    pattern.VarTerm: _is_a(Var),
    pattern.ConstTerm: _is_a(Constant),
    pattern.CallTerm: _call,
    pattern.OneOfTerm: _one_of,
    pattern.TraitTerm: _call_where,
    pattern.ApplyTerm: _apply,
    pattern.AltTerm: _alternatives,
    pattern.TupleTerm: _is_a(Tuple),
    pattern.FieldTerm: _field,
    pattern.FunctionTerm: _is_a(Function),
    pattern.LetTerm: _is_a(Let),
    pattern.IfTerm: _is_a(If),
    pattern.DominatorTerm: lambda term: quick_test(term.child),
}
