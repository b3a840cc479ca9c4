"""The simplifier of loop programs: canonical index arithmetic under known ranges.

int64 scalars become linear sums (``linear``), and conditions are decided from known facts. Other
types are folded only where the result has the same bits.

Index arithmetic does not overflow; data (elements of buffers, converted floats, bits) may.
Variables count as index arithmetic unless they are bound to data. ``facts`` tracks which is which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from weft.ir.dtype import int64
from weft.tir import expr as x
from weft.tir.expr import FALSE, TRUE, IntImm, PrimExpr, Var, as_prim
from weft.tir.simplify import compare, divmod
from weft.tir.simplify import interval as iv
from weft.tir.simplify.facts import Facts, linear_of_canonical, product_atom, product_factors
from weft.tir.simplify.interval import finite
from weft.tir.simplify.linear import Linear
from weft.tir.simplify.scalar import fold_float, fold_vector
from weft.tir.visitor import map_children, post_order

# Products that would expand to more terms than this stay products.
_MAX_PRODUCTS = 16


class Analyzer:
    """Simplifies and proves under the facts of ``bind``, ``bind_value`` and ``constraint``.

    Results are memoised, so use one analyzer for a whole function.
    """

    def __init__(self) -> None:
        self._facts = Facts()
        self._memo: dict[PrimExpr, PrimExpr] = {}
        self._sums: dict[PrimExpr, Linear] = {}
        self._ends: dict[Var, list[Linear]] = {}  # facts from symbolic range ends

    # facts

    def bind(self, var: Var, min: PrimExpr | int, extent: PrimExpr | int | None) -> None:
        """State that ``var`` is in ``[min, min + extent)``; ``extent=None`` means unbounded.

        Binding a variable again replaces its range. Symbolic ends are kept as facts.
        """
        self.release(var)
        start = self._exact(as_prim(min))
        low, high = self._facts.of_sum(start)
        if extent is None:
            high = float("inf")
        else:
            size = self._exact(as_prim(extent))
            end = start.plus(size)
            high = iv.least(self._facts.of_sum(end)[1] - 1, float("inf"))  # no loop runs longer
            if not size.is_const or not start.is_const:
                self._add_fact(var, end.plus(Linear.of_atom(var), -1), -1)
        if not start.is_const:
            self._add_fact(var, Linear.of_atom(var).plus(start, -1), 0)
        self._set_range(var, (low, high))

    def bind_value(self, var: Var, value: PrimExpr) -> None:
        """State that ``var`` equals ``value`` (a let), so that it has the bounds of the value."""
        if var.dtype is int64:
            self._facts.bound.add(var)
            self._set_range(var, self._facts.of_sum(self._exact(value)))

    def bind_fact(self, var: Var, condition: x.Compare) -> None:
        """State an inequality of index arithmetic that holds in the scope of ``var``."""
        total = compare.as_nonnegative(
            type(condition), self._exact(condition.a), self._exact(condition.b))
        self._add_fact(var, total, 0)

    def _set_range(self, var: Var, found: iv.Interval) -> None:
        known = self._facts.ranges.get(var)
        if known != found:
            self._facts.ranges[var] = found
            if known is not None or var in self._facts.asked:
                self._forget()

    def _add_fact(self, var: Var, total: Linear, offset: int) -> None:
        fact = Linear(total.terms, total.const + offset)
        if not fact.is_const:
            self._facts.not_negative.append(fact)
            self._ends.setdefault(var, []).append(fact)
            self._forget()

    def release(self, var: Var) -> None:
        """Drop the facts from symbolic range ends of ``var``, at the end of its scope.

        They imply that the range is not empty, which holds only inside the loop.
        """
        ends = self._ends.pop(var, None)
        if ends is not None:
            facts = self._facts
            facts.not_negative = [f for f in facts.not_negative if f not in ends]
            self._forget()

    def _forget(self) -> None:
        self._facts.forget()
        self._memo = {}
        self._sums = {}

    @contextmanager
    def constraint(self, condition: PrimExpr) -> Iterator[None]:
        """Assume ``condition`` inside the block."""
        facts = self._facts
        outer = (dict(facts.ranges), list(facts.not_negative), self._memo, self._sums)
        ends = {var: list(kept) for var, kept in self._ends.items()}
        self._forget()
        try:
            self._assume(condition)
            yield
        finally:
            facts.ranges, facts.not_negative = outer[0], outer[1]
            facts.forget()
            self._memo, self._sums = outer[2], outer[3]
            self._ends = ends

    def _assume(self, condition: PrimExpr) -> None:
        kind = type(condition)
        if kind is x.And:
            self._assume(condition.a)  # type: ignore[attr-defined]
            self._assume(condition.b)  # type: ignore[attr-defined]
        elif kind is x.Not:
            self._assume_not(condition.a)  # type: ignore[attr-defined]
        elif kind is x.Call and condition.name == "likely":  # type: ignore[attr-defined]
            self._assume(condition.args[0])  # type: ignore[attr-defined]
        elif isinstance(condition, x.Compare) and condition.a.dtype is int64:
            a, b = self._exact(condition.a), self._exact(condition.b)
            if kind in compare.INEQUALITIES:
                self._know(compare.as_nonnegative(kind, a, b))
            elif kind is x.EQ:
                self._know(a.plus(b, -1))
                self._know(b.plus(a, -1))

    def _assume_not(self, condition: PrimExpr) -> None:
        kind = type(condition)
        if kind is x.Or:
            self._assume_not(condition.a)  # type: ignore[attr-defined]
            self._assume_not(condition.b)  # type: ignore[attr-defined]
        elif kind in _OPPOSITE:
            self._assume(_OPPOSITE[kind](condition.a, condition.b))  # type: ignore[attr-defined]
        elif kind is x.Call and condition.name == "likely":  # type: ignore[attr-defined]
            self._assume_not(condition.args[0])  # type: ignore[attr-defined]

    def _know(self, total: Linear) -> None:
        """Record ``total >= 0``, as a bound of its only variable, or as a fact."""
        if total.is_const:
            return
        if len(total.terms) == 1:
            ((atom, _),) = total.terms.items()
            self._narrow(atom, total)
            if type(atom) is Var:
                self._forget()
                return
        for atom in total.terms:
            if not iv.is_within(self._facts.interval(atom), (-iv.INDEX_LIMIT, iv.INDEX_LIMIT)):
                self._narrow(atom, total)
        self._facts.not_negative.append(total)
        self._forget()

    def _narrow(self, atom: PrimExpr, total: Linear) -> None:
        """Narrow the range of one term by ``total >= 0``."""
        c = total.terms[atom]
        rest = self._facts.of_sum(total.plus(Linear.of_atom(atom), -c))[1]
        low, high = self._facts.interval(atom)
        end = rest if isinstance(rest, float) else rest // abs(c)
        if c > 0:
            low = iv.greatest(low, -end)
        else:
            high = iv.least(high, end)
        self._facts.ranges[atom] = (low, high)

    # queries

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """The canonical form of ``e``, equal to it under the current facts."""
        found = self._memo.get(e)
        if found is None:
            found = self._simplify(e)
            self._memo[e] = found
            self._memo[found] = found
        return found

    def sum_of_products(self, terms: Sequence[tuple[PrimExpr, PrimExpr]]) -> PrimExpr:
        """``a * b + c * d + ...`` of int64 scalars, simplified, without nodes for partial sums."""
        factors: dict[PrimExpr, int] = {}
        constant = 0
        for a, b in terms:
            if type(a) is IntImm and type(b) is IntImm:  # registers have constant indices
                constant += a.value * b.value
                continue
            part, scale = self._sum(a), self._sum(b)
            if not scale.is_const:
                part, scale = self._sum(x.mul(a, b)), Linear.of_const(1)
            constant += part.const * scale.const
            for atom, c in part.terms.items():
                factors[atom] = factors.get(atom, 0) + c * scale.const
        if not factors:
            return Linear.of_const(constant).wrapped().to_expr()
        total = Linear({atom: c for atom, c in factors.items() if c}, constant)
        return self._settled(divmod.recombine(self._facts, total)).to_expr()

    def can_prove(self, condition: PrimExpr) -> bool:
        """Whether ``condition`` follows from the facts; ``False`` if no proof was found."""
        return self.simplify(condition) is TRUE

    def int_bounds(self, e: PrimExpr) -> tuple[int | None, int | None]:
        """Lower and upper bound of ``e``, inclusive; ``None`` for an unknown bound."""
        low, high = self._facts.of_sum(self._exact(e))
        return finite(low), finite(high)

    # rewriting

    def _sum(self, e: PrimExpr) -> Linear:
        found = self._sums.get(e)
        if found is None:
            rule = self._SUMS.get(type(e))
            if rule is None or e.dtype is not int64:
                found = linear_of_canonical(self.simplify(e)) if rule is None else Linear.of_atom(e)
            else:
                found = self._settled(divmod.recombine(self._facts, rule(self, e)))
            self._sums[e] = found
        return found

    def _exact(self, e: PrimExpr) -> Linear:
        """``e`` as a linear sum that cannot overflow; a single opaque atom if it might."""
        return self._facts.exact(self._sum(e))

    def is_exact(self, e: PrimExpr) -> bool:
        """Whether an int64 scalar is known not to overflow."""
        return self._facts.is_exact(self._sum(e))

    def _settled(self, total: Linear) -> Linear:
        """``total``; a constant if its only atom has a single possible value."""
        total = total.wrapped()
        if len(total.terms) != 1:
            return total
        low, high = self._facts.of_sum(total)
        return Linear.of_const(int(low)).wrapped() if low == high else total

    def nonnegative_form(self, condition: PrimExpr) -> Linear | None:
        """The sum that is >= 0 exactly where ``condition``, an inequality of int64 scalars, holds.

        ``None`` for other conditions.
        """
        if type(condition) not in compare.INEQUALITIES or condition.a.dtype is not int64:  # type: ignore[attr-defined]
            return None
        a, b = self._exact(condition.a), self._exact(condition.b)  # type: ignore[attr-defined]
        return compare.as_nonnegative(type(condition), a, b)

    def _simplify(self, e: PrimExpr) -> PrimExpr:
        kind = type(e)
        if e.dtype is int64 and kind in self._SUMS:
            return self._sum(e).to_expr()
        rule = self._RULES.get(kind)
        if rule is not None:
            return rule(self, e)
        new = map_children(e, self.simplify)
        if new is not e and type(new) is not kind:
            return self.simplify(new)
        if new.dtype.lanes > 1:
            return fold_vector(self, new)
        return fold_float(new) if new.dtype.is_float else new

    def _total(self, e: x.Add) -> Linear:
        return self._sum(e.a).plus(self._sum(e.b))

    def _difference(self, e: x.Sub) -> Linear:
        return self._sum(e.a).plus(self._sum(e.b), -1)

    def _product(self, e: x.Mul) -> Linear:
        a, b = self._sum(e.a), self._sum(e.b)
        if b.is_const:
            return a.scaled(b.const)
        if a.is_const:
            return b.scaled(a.const)
        if not self._is_expanded(a, b):
            return Linear.of_atom(x.Mul(a.to_expr(), b.to_expr()))
        total = Linear.of_const(a.const * b.const)
        for left, c in a.terms.items():
            total = total.plus(Linear.of_atom(left, c * b.const) if b.const else Linear({}, 0))
            for right, d in b.terms.items():
                total = total.plus(Linear.of_atom(product_atom((left, right)), c * d))
        return total.plus(Linear(b.terms, 0), a.const)

    def _is_expanded(self, a: Linear, b: Linear) -> bool:
        """Whether to expand a product of sums: if it is short, and cannot overflow."""
        factors = (sum(len(product_factors(atom)) for atom in total.terms) for total in (a, b))
        return (math.prod(factors) <= _MAX_PRODUCTS
                and self._facts.is_exact(a) and self._facts.is_exact(b))

    def _floordiv(self, e: x.FloorDiv) -> Linear:
        a, b = self._sum(e.a), self._sum(e.b)
        if b.is_const and b.const > 0:
            return divmod.floordiv(self._facts, a, b.const)
        divisor = b.to_expr()
        parts = divmod.split_symbolic(self._facts, a, divisor)
        if parts is not None:
            return parts[0]
        return Linear.of_atom(x.FloorDiv(a.to_expr(), divisor))

    def _floormod(self, e: x.FloorMod) -> Linear:
        a, b = self._sum(e.a), self._sum(e.b)
        if b.is_const and b.const > 0:
            return divmod.floormod(self._facts, a, b.const)
        divisor = b.to_expr()
        parts = divmod.split_symbolic(self._facts, a, divisor)
        if parts is not None:
            return parts[1]
        return Linear.of_atom(x.FloorMod(a.to_expr(), divisor))

    def _truncated(self, e: x.Div) -> PrimExpr:
        new = map_children(e, self.simplify)
        if e.dtype.is_float:
            return fold_float(new)
        if e.dtype is int64 and type(new) is x.Div:
            a, b = self._facts.interval(new.a), self._facts.interval(new.b)
            if a[0] >= 0 and b[0] > 0:
                return self.simplify(x.floordiv(new.a, new.b))
        return new

    def _extremum(self, e: x.Binary) -> PrimExpr:
        if e.dtype is not int64:
            return map_children(e, self.simplify)
        a, b = self._exact(e.a), self._exact(e.b)
        difference = a.plus(b, -1)
        is_min = type(e) is x.Min
        if self._facts.is_not_negative(difference):
            return (b if is_min else a).to_expr()
        if self._facts.is_not_negative(difference.scaled(-1)):
            return (a if is_min else b).to_expr()
        return type(e)(a.to_expr(), b.to_expr())

    def _compare(self, e: x.Compare) -> PrimExpr:
        if e.a.dtype is int64:
            decide = compare.inequality if type(e) in compare.INEQUALITIES else compare.equality
            return decide(self._facts, type(e), self._exact(e.a), self._exact(e.b))
        new = map_children(e, self.simplify)
        return fold_vector(self, new) if new.dtype.lanes > 1 else new

    def _and(self, e: x.And) -> PrimExpr:
        a = self.simplify(e.a)
        if a is FALSE or e.dtype.lanes > 1:
            return x.all_of(a, self.simplify(e.b))
        with self.constraint(a):
            b = self.simplify(e.b)
        with self.constraint(b):
            a = self.simplify(a)
        return FALSE if b is FALSE else x.all_of(a, b)

    def _or(self, e: x.Or) -> PrimExpr:
        a = self.simplify(e.a)
        if a is TRUE or e.dtype.lanes > 1:
            return x.any_of(a, self.simplify(e.b))
        with self.constraint(x.not_(a)):
            b = self.simplify(e.b)
        return TRUE if b is TRUE else x.any_of(a, b)

    def _not(self, e: x.Not) -> PrimExpr:
        a = self.simplify(e.a)
        opposite = _OPPOSITE.get(type(a))
        # The opposite of ``a < b`` is ``a >= b`` for integers only: NaN is neither.
        if opposite is not None and not a.a.dtype.is_float and a.dtype.lanes == 1:  # type: ignore[attr-defined]
            return self.simplify(opposite(a.a, a.b))  # type: ignore[attr-defined]
        return x.not_(a)

    def _chosen(self, condition: PrimExpr, t: PrimExpr, f: PrimExpr) -> tuple[PrimExpr, ...]:
        """Condition and both sides, each side simplified knowing that it was chosen."""
        condition = self.simplify(condition)
        if condition is TRUE or condition is FALSE or condition.dtype.lanes > 1:
            return condition, self.simplify(t), self.simplify(f)
        with self.constraint(condition):
            t = self.simplify(t)
        with self.constraint(x.not_(condition)):
            f = self.simplify(f)
        return condition, t, f

    def _select(self, e: x.Select) -> PrimExpr:
        """A select evaluates both sides, so loads in them may not use the condition."""
        if e.condition.dtype.lanes > 1 or any(
                isinstance(n, x.BufferLoad | x.ProducerLoad)
                for side in (e.true_value, e.false_value) for n in post_order(side)):
            return x.select(self.simplify(e.condition), self.simplify(e.true_value),
                            self.simplify(e.false_value))
        return x.select(*self._chosen(e.condition, e.true_value, e.false_value))

    def _let(self, e: x.Let) -> PrimExpr:
        value = self.simplify(e.value)
        self.bind_value(e.var, value)
        body = self.simplify(e.body)
        return e if value is e.value and body is e.body else x.Let(e.var, value, body)

    def _call(self, e: x.Call) -> PrimExpr:
        if e.name == "if_then_else":
            return x.if_then_else(*self._chosen(*e.args))
        return map_children(e, self.simplify)

    _SUMS: ClassVar[dict[type, Callable[..., Linear]]] = {
        IntImm: lambda _, e: Linear.of_const(e.value),
        Var: lambda _, e: Linear.of_atom(e),
        x.Add: _total,
        x.Sub: _difference,
        x.Mul: _product,
        x.FloorDiv: _floordiv,
        x.FloorMod: _floormod,
    }
    _RULES: ClassVar[dict[type, Callable[..., PrimExpr]]] = {
        x.Div: _truncated, x.Min: _extremum, x.Max: _extremum,
        **dict.fromkeys((x.LT, x.LE, x.GT, x.GE, x.EQ, x.NE), _compare),
        x.And: _and, x.Or: _or, x.Not: _not,
        x.Select: _select, x.Call: _call, x.Let: _let,
    }  # fmt: skip


def _opposite(kind: type) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    return lambda a, b: x.compare(kind, a, b)


_OPPOSITE: dict[type, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    x.LT: _opposite(x.GE), x.GE: _opposite(x.LT), x.LE: _opposite(x.GT), x.GT: _opposite(x.LE),
    x.EQ: _opposite(x.NE), x.NE: _opposite(x.EQ),
}  # fmt: skip
