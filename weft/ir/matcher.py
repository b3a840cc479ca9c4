"""Matching patterns against expressions, with backtracking over alternatives.

Recursion follows the pattern, which is a line or two of source, not the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir.encode import encode_value
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.pattern import (
    COMMUTATIVE,
    AltTerm,
    CallTerm,
    ConstTerm,
    FieldTerm,
    OneOfTerm,
    Term,
    TupleTerm,
    VarTerm,
)

Captures = Mapping[str, Expr]


def match(term: Term, expr: Expr) -> dict[str, Expr] | None:
    """What the names in ``term`` stand for, ``None`` if ``expr`` does not match."""
    found = next(_match(term, expr, {}), None)
    return None if found is None else dict(found)


def matches(term: Term, expr: Expr) -> Iterator[dict[str, Expr]]:
    """Every way in which ``expr`` matches."""
    return (dict(found) for found in _match(term, expr, {}))


def _match(term: Term, expr: Expr, known: Captures) -> Iterator[Captures]:
    if not all(condition(expr) for condition in term.conditions):
        return
    if term.name is not None:
        earlier = known.get(term.name)
        if earlier is None:
            known = {**known, term.name: expr}
        elif not _same(earlier, expr):
            return
    yield from _match_kind(term, expr, known)


def _match_kind(term: Term, expr: Expr, known: Captures) -> Iterator[Captures]:
    if isinstance(term, (CallTerm, OneOfTerm)):
        yield from _match_call(term, expr, known)
    elif isinstance(term, AltTerm):
        for option in term.options:
            yield from _match(option, expr, known)
    elif isinstance(term, TupleTerm):
        if isinstance(expr, Tuple) and len(expr.fields) == len(term.fields):
            yield from _match_all(term.fields, expr.fields, known)
    elif isinstance(term, FieldTerm):
        if isinstance(expr, TupleGetItem) and expr.index == term.index:
            yield from _match(term.value, expr.tuple_value, known)
    elif isinstance(term, ConstTerm):
        if isinstance(expr, Constant) and _filled_with(expr, term.value):
            yield known
    elif not isinstance(term, VarTerm) or isinstance(expr, Var):
        yield known


def _match_call(term: CallTerm | OneOfTerm, expr: Expr, known: Captures) -> Iterator[Captures]:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return
    wanted = (term.op,) if isinstance(term, CallTerm) else term.ops
    if expr.op not in wanted or len(expr.args) != len(term.args):
        return
    if isinstance(term, CallTerm) and not _attrs_match(expr, term.attrs):
        return
    yield from _match_all(term.args, expr.args, known)
    if expr.op.name in COMMUTATIVE:
        yield from _match_all(term.args, expr.args[::-1], known)


def _attrs_match(call: Call, wanted: Mapping[str, Any]) -> bool:
    for name, value in wanted.items():
        actual = getattr(call.attrs, name)
        if callable(value):
            if not value(actual):
                return False
        elif encode_value(actual) != encode_value(value):
            return False
    return True


def _match_all(terms: Sequence[Term], exprs: Sequence[Expr], known: Captures) -> Iterator[Captures]:
    if not terms:
        yield known
        return
    for found in _match(terms[0], exprs[0], known):
        yield from _match_all(terms[1:], exprs[1:], found)


def _same(a: Expr, b: Expr) -> bool:
    if a is b:
        return True
    if isinstance(a, Constant) and isinstance(b, Constant):
        return a.data.dtype == b.data.dtype and np.array_equal(a.data, b.data)
    return False


def _filled_with(constant: Constant, value: float | bool | None) -> bool:
    if value is None:
        return True
    data = constant.data
    # The first element settles most cases without a look at all of a large weight.
    return data.size > 0 and bool(data.flat[0] == value) and bool((data == value).all())
