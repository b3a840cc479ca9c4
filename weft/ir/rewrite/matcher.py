"""Matching patterns against expressions, with backtracking over alternatives.

Recursion follows the pattern, which is short, not the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.rewrite import pattern
from weft.ir.structural import encode_value, structural_equal
from weft.ir.visitor import evaluated, post_order
from weft.support.dataclass import dataclass


class Users:
    """The users of each node of a program."""

    def __init__(self, root: Expr) -> None:
        self._users: dict[int, list[Expr]] = {}
        for node in post_order(root):
            for part in evaluated(node):
                self._users.setdefault(id(part), []).append(node)

    def of(self, node: Expr) -> Sequence[Expr]:
        """The nodes that evaluate ``node`` as an operand; empty for the root."""
        return self._users.get(id(node), ())


@dataclass(frozen=True, slots=True)
class Found:
    """One way to match: captured names, and the nodes that the pattern spells out.

    The matches of ``any_`` and ``var_`` are not among the nodes, which form a linked list.
    """

    names: Mapping[str, Expr]
    last: Expr | None = None
    before: Found | None = None

    def nodes(self) -> list[Expr]:
        """The nodes spelled out, each once, after their operands' users."""
        found: dict[int, Expr] = {}
        current: Found | None = self
        while current is not None:
            if current.last is not None:
                found[id(current.last)] = current.last
            current = current.before
        return list(found.values())[::-1]


_NOTHING = Found({})
_Matches = Iterator[Found]


def match(term: pattern.Term, expr: Expr, *, root: Expr | None = None) -> dict[str, Expr] | None:
    """The captured names of ``term``; ``None`` if ``expr`` does not match.

    ``root`` is the program that contains ``expr``, for patterns with ``dominates``; without it,
    only uses within ``expr`` are known.
    """
    found = next(find(term, expr, Users(root) if root is not None else None), None)
    return None if found is None else dict(found.names)


def matches(term: pattern.Term, expr: Expr) -> Iterator[dict[str, Expr]]:
    """Every way in which ``expr`` matches, as captured names."""
    return (dict(found.names) for found in find(term, expr))


def find(term: pattern.Term, expr: Expr, users: Users | None = None) -> _Matches:
    """Every way in which ``expr`` matches, with the nodes that the pattern spells out."""
    return _Matcher(expr, users).match(term, expr, _NOTHING)


class _Matcher:
    """One search; ``users`` are computed on demand."""

    def __init__(self, root: Expr, users: Users | None) -> None:
        self._root = root
        self._users = users

    def match(self, term: pattern.Term, expr: Expr, known: Found) -> _Matches:
        captured = _captured(term, expr, known)
        if captured is not None:
            yield from _KINDS[type(term)](self, term, expr, captured)

    def _all(self, terms: Sequence[pattern.Term], exprs: Sequence[Expr], known: Found) -> _Matches:
        if len(terms) != len(exprs):
            return
        for index, (term, expr) in enumerate(zip(terms, exprs, strict=True)):
            if type(term) is not pattern.AnyTerm:  # it may match in several ways
                for found in self.match(term, expr, known):
                    yield from self._all(terms[index + 1 :], exprs[index + 1 :], found)
                return
            captured = _captured(term, expr, known)
            if captured is None:
                return
            known = captured
        yield known

    # -- one method per kind of pattern ----------------------------------------------------------

    def any(self, _: pattern.AnyTerm, __: Expr, known: Found) -> _Matches:
        yield known

    def var(self, _: pattern.VarTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Var):
            yield known

    def const(self, term: pattern.ConstTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Constant) and _filled_with(expr, term.value):
            yield Found(known.names, expr, known)

    def expr(self, term: pattern.ExprTerm, expr: Expr, known: Found) -> _Matches:
        if expr is term.expr or structural_equal(expr, term.expr):
            yield known if isinstance(expr, (Op, Var)) else Found(known.names, expr, known)

    def call(self, term: pattern.CallTerm | pattern.OneOfTerm, expr: Expr,
             known: Found) -> _Matches:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return
        wanted = (term.op,) if isinstance(term, pattern.CallTerm) else term.ops
        if expr.op not in wanted:
            return
        if isinstance(term, pattern.CallTerm) and not _attrs_match(expr, term.attrs):
            return
        yield from self._operands(term.args, expr, known)

    def call_where(self, term: pattern.TraitTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Call) and isinstance(expr.op, Op) and term.holds(expr.op.traits):
            yield from self._operands(term.args, expr, known)

    def _operands(self, terms: Sequence[pattern.Term], call: Call, known: Found) -> _Matches:
        known = Found(known.names, call, known)
        yield from self._all(terms, call.args, known)
        if isinstance(call.op, Op) and call.op.traits.is_commutative:
            yield from self._all(terms, call.args[::-1], known)

    def apply(self, term: pattern.ApplyTerm, expr: Expr, known: Found) -> _Matches:
        if not isinstance(expr, Call):
            return
        for found in self.match(term.callee, expr.op, known):
            if term.args is None:
                yield Found(found.names, expr, found)
            else:
                yield from self._operands(term.args, expr, found)

    def alternatives(self, term: pattern.AltTerm, expr: Expr, known: Found) -> _Matches:
        for option in term.options:
            yield from self.match(option, expr, known)

    def tuple(self, term: pattern.TupleTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Tuple):
            inside = Found(known.names, expr, known)
            if term.fields is None:
                yield inside
            else:
                yield from self._all(term.fields, expr.fields, inside)

    def field(self, term: pattern.FieldTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, TupleGetItem) and term.index in (None, expr.index):
            yield from self.match(term.value, expr.tuple_value, Found(known.names, expr, known))

    def function(self, term: pattern.FunctionTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Function):
            inside = Found(known.names, expr, known)
            params = expr.params if term.params is not None else ()
            terms = (*(term.params or ()), term.body)
            yield from self._all(terms, (*params, expr.body), inside)

    def let(self, term: pattern.LetTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, Let):
            parts = (expr.var, expr.value, expr.body)
            inside = Found(known.names, expr, known)
            yield from self._all((term.var, term.value, term.body), parts, inside)

    def conditional(self, term: pattern.IfTerm, expr: Expr, known: Found) -> _Matches:
        if isinstance(expr, If):
            parts = (expr.cond, expr.true_branch, expr.false_branch)
            inside = Found(known.names, expr, known)
            yield from self._all((term.cond, term.true_branch, term.false_branch), parts, inside)

    # -- dominators ------------------------------------------------------------------------------

    def dominator(self, term: pattern.DominatorTerm, child: Expr, known: Found) -> _Matches:
        for found in self.match(term.child, child, known):
            for parent in self._above(term, child, found):
                for whole in self.match(term.parent, parent, found):
                    between = self._between(term.path, parent, child, whole)
                    if between is not None:
                        yield between

    def _above(self, term: pattern.DominatorTerm, child: Expr, known: Found) -> Iterator[Expr]:
        """Operands of ``child``, nearest first, reached through nodes that match ``path``."""
        pending, seen = list(evaluated(child)), {id(child)}
        while pending:
            node = pending.pop(0)
            if id(node) in seen:
                continue
            seen.add(id(node))
            if self._fits(term.parent, node, known):
                yield node
            if self._fits(term.path, node, known):
                pending.extend(evaluated(node))

    def _between(self, path: pattern.Term, parent: Expr, child: Expr, known: Found) -> Found | None:
        """``known`` with the nodes from ``parent`` to ``child``; ``None`` if a use bypasses it."""
        if self._users is None:
            self._users = Users(self._root)
        pending, seen = [parent], {id(parent), id(child)}
        while pending:
            users = self._users.of(pending.pop())
            if not users:
                return None  # a path reached the end of the program without passing ``child``
            for user in users:
                if id(user) in seen:
                    continue
                seen.add(id(user))
                if not self._fits(path, user, known):
                    return None
                known = Found(known.names, user, known)
                pending.append(user)
        return known

    def _fits(self, term: pattern.Term, expr: Expr, known: Found) -> bool:
        return next(self.match(term, expr, known), None) is not None


_KINDS: dict[type, Callable[[_Matcher, Any, Expr, Found], _Matches]] = {
    pattern.AnyTerm: _Matcher.any,
    pattern.VarTerm: _Matcher.var,
    pattern.ConstTerm: _Matcher.const,
    pattern.ExprTerm: _Matcher.expr,
    pattern.CallTerm: _Matcher.call,
    pattern.OneOfTerm: _Matcher.call,
    pattern.TraitTerm: _Matcher.call_where,
    pattern.ApplyTerm: _Matcher.apply,
    pattern.AltTerm: _Matcher.alternatives,
    pattern.TupleTerm: _Matcher.tuple,
    pattern.FieldTerm: _Matcher.field,
    pattern.FunctionTerm: _Matcher.function,
    pattern.LetTerm: _Matcher.let,
    pattern.IfTerm: _Matcher.conditional,
    pattern.DominatorTerm: _Matcher.dominator,
}


def _attrs_match(call: Call, wanted: Mapping[str, Any]) -> bool:
    for name, value in wanted.items():
        actual = getattr(call.attrs, name)
        if callable(value):
            if not value(actual):
                return False
        elif encode_value(actual) != encode_value(value):
            return False
    return True


def _captured(term: pattern.Term, expr: Expr, known: Found) -> Found | None:
    """``known`` with the name of ``term``; ``None`` if a condition fails or the name differs."""
    for condition in term.conditions:
        if not condition(expr):
            return None
    if term.name is None:
        return known
    earlier = known.names.get(term.name)
    if earlier is None:
        return Found({**known.names, term.name: expr}, known.last, known.before)
    return known if _same(earlier, expr) else None


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
    # The first element decides most cases without reading all of a large weight.
    return data.size > 0 and bool(data.flat[0] == value) and bool((data == value).all())
