"""Known facts: ranges of variables and sums known to be >= 0, and proofs from them.

Sums are reordered freely, which is correct modulo 2**64. Comparisons, quotients and bounds depend
on the mathematical value, so they may use the terms of a sum only if it is exact: no partial sum
can overflow int64. Index arithmetic is exact by definition, sums of data if their intervals prove
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft.ir.dtype import int64
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var
from weft.tir.simplify import interval as iv
from weft.tir.simplify.interval import EVERYTHING, Interval
from weft.tir.simplify.linear import Linear
from weft.tir.visitor import children

# Maximum number of facts in a proof; index arithmetic of loop nests needs two.
_PROOF_DEPTH = 3


class Facts:
    """Ranges of variables, and ``not_negative``: sums that are >= 0."""

    def __init__(self) -> None:
        self.ranges: dict[PrimExpr, Interval] = {}
        self.not_negative: list[Linear] = []
        self.asked: set[PrimExpr] = set()  # variables whose (missing) range was looked up
        self.bound: set[PrimExpr] = set()  # variables of lets, whose values may be data
        self._memo: dict[PrimExpr, Interval] = {}

    def forget(self) -> None:
        """Drop derived intervals after the facts have changed."""
        self._memo.clear()

    def interval(self, e: PrimExpr) -> Interval:
        """The interval of a canonical expression under the facts."""
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._interval(e)
        return found

    def of_sum(self, total: Linear) -> Interval:
        """The interval of the mathematical value of a sum; for data it may exceed int64."""
        low: iv.Bound = total.const
        high: iv.Bound = total.const
        for atom, c in total.terms.items():
            a, b = self.interval(atom)
            if c < 0:
                a, b = b, a
            low += c * a
            high += c * b
        return low, high

    def is_exact(self, total: Linear) -> bool:
        """Whether neither the sum nor any partial sum can overflow int64."""
        terms = total.terms
        if len(terms) == 1 and total.const == 0 and 1 in terms.values():
            return True
        low, high = min(total.const, 0), max(total.const, 0)
        is_open_below = is_open_above = False
        for atom, c in terms.items():
            a, b = self.interval(atom)
            if c < 0:
                a, b = b, a
            if isinstance(a, float):
                is_open_below = True
            elif c * a < 0:
                low += c * a
            if isinstance(b, float):
                is_open_above = True
            elif c * b > 0:
                high += c * b
        return (low >= (-iv.SMALL_DATA if is_open_below else iv.INT64[0])
                and high <= (iv.SMALL_DATA if is_open_above else iv.INT64[1]))

    def exact(self, total: Linear) -> Linear:
        """``total`` if it is exact; else one opaque atom with its value."""
        return total if self.is_exact(total) else Linear.of_atom(total.to_expr())

    def product_of(self, factors: Iterable[PrimExpr]) -> Interval | None:
        """The interval of a product; ``None`` if it may overflow int64."""
        result: Interval = (1, 1)
        for factor in factors:
            own = self.interval(factor)
            product = iv.product(result, own)
            if not iv.is_within(product, iv.INT64):
                return None
            is_open = isinstance(product[0], float) or isinstance(product[1], float)
            if is_open and not (iv.is_small(result) and iv.is_small(own)):
                return None
            result = product
        return result

    def _interval(self, e: PrimExpr) -> Interval:
        kind = type(e)
        if kind is x.IntImm:
            return e.value, e.value  # type: ignore[attr-defined]
        if kind is Var:
            return self._of_var(e)
        rule = _INTERVALS.get(kind)
        found = iv.of_dtype(e.dtype) if rule is None else rule(self, e)
        if e.dtype is not int64 and not iv.is_within(found, iv.of_dtype(e.dtype)):
            found = iv.of_dtype(e.dtype)
        known = self.ranges.get(e)  # a constraint may have narrowed it
        return found if known is None else iv.common(found, known)

    def _of_var(self, var: PrimExpr) -> Interval:
        found = self.ranges.get(var)
        if found is None:
            self.asked.add(var)
            return EVERYTHING if var.dtype is int64 else iv.of_dtype(var.dtype)
        return found

    def is_not_negative(self, total: Linear, depth: int = _PROOF_DEPTH) -> bool:
        """Whether ``total >= 0`` follows from the facts; ``False`` if no proof was found."""
        if self.of_sum(total)[0] >= 0:
            return True
        if depth == 0 or total.is_const:
            return False
        if any(self.is_not_negative(rest, depth - 1) for rest in self._weakened(total, depth)):
            return True
        cases = self._cases(total)
        return bool(cases) and all(self.is_not_negative(case, depth - 1) for case in cases)

    def _cases(self, total: Linear) -> list[Linear]:
        """``total`` with each operand of a minimum that is added, or a maximum that is subtracted.

        It is >= 0 exactly where all of these are.
        """
        for atom, c in total.terms.items():
            if type(atom) is (x.Min if c > 0 else x.Max):
                rest = total.plus(Linear.of_atom(atom), -c)
                operands = (atom.a, atom.b)
                return [rest.plus(self.exact(linear_of_canonical(one)), c) for one in operands]
        return []

    def _weakened(self, total: Linear, depth: int) -> Iterator[Linear]:
        """Lower bounds of ``total`` (times a positive factor): one fact subtracted.

        If a lower bound is >= 0, so is ``total``. Only facts that cancel a term are tried.
        """
        for fact in self.not_negative:
            yield from _cancel(total, fact)
        for atom in list(total.terms):
            kind = type(atom)
            if kind is x.FloorDiv:
                for fact in self._quotient_facts(atom):
                    yield from _cancel(total, fact)
            elif kind is x.FloorMod:
                for fact in self._remainder_facts(atom):
                    yield from _cancel(total, fact)
            elif kind is x.Min or kind is x.Max:
                for fact in self._extremum_facts(atom):
                    yield from _cancel(total, fact)
            elif kind is x.Mul and depth == _PROOF_DEPTH:
                for fact in self._product_facts(atom):
                    yield from _cancel(total, fact)

    def _product_facts(self, atom: PrimExpr) -> Iterator[Linear]:
        """Facts multiplied by a nonnegative factor of the product ``atom``."""
        factors = product_factors(atom)
        if self.product_of(factors) is None:
            return
        for factor in factors:
            if self.interval(factor)[0] >= 0:
                for fact in self.not_negative:
                    if any(self.product_of([*product_factors(a), factor]) is None
                           for a in fact.terms):
                        continue
                    yield Linear(
                        {
                            **{product_atom((a, factor)): c for a, c in fact.terms.items()},
                            **({factor: fact.const} if fact.const else {}),
                        },
                        0,
                    )

    def _quotient_facts(self, atom: PrimExpr) -> Iterator[Linear]:
        """``0 <= a - c * (a // c) <= c - 1`` for an atom ``a // c``.

        ``a // b <= c - 1`` for a symbolic divisor, if ``a < c * b`` is known.
        """
        divisor = x.int_value(atom.b)  # type: ignore[attr-defined]
        if divisor is None:
            for multiple in self._multiples_above(atom):
                yield multiple.plus(Linear.of_atom(atom), -1).plus(Linear.of_const(-1))
            return
        if divisor <= 0:
            return
        dividend = self.exact(linear_of_canonical(atom.a))  # type: ignore[attr-defined]
        rest = dividend.plus(Linear.of_atom(atom), -divisor)
        yield rest
        yield Linear.of_const(divisor - 1).plus(rest, -1)
        yield from self._nested_quotient_facts(atom, divisor)

    def _nested_quotient_facts(self, atom: PrimExpr, divisor: int) -> Iterator[Linear]:
        """``a // n // 4 <= c - 1`` if ``a < 4 * c * n`` is known, for a symbolic ``n``."""
        inner = atom.a  # type: ignore[attr-defined]
        if type(inner) is not x.FloorDiv or x.int_value(inner.b) is not None:
            return
        for multiple in self._multiples_above(inner):
            if all(c % divisor == 0 for c in (*multiple.terms.values(), multiple.const)):
                most = Linear({term: c // divisor for term, c in multiple.terms.items()},
                              multiple.const // divisor)
                yield most.plus(Linear.of_atom(atom), -1).plus(Linear.of_const(-1))

    def _remainder_facts(self, atom: PrimExpr) -> Iterator[Linear]:
        """``a % b <= b - 1`` for a symbolic divisor, if ``0 <= a < c * b`` is known: then b > 0."""
        is_symbolic = x.int_value(atom.b) is None  # type: ignore[attr-defined]
        if is_symbolic and any(True for _ in self._multiples_above(atom)):
            divisor = self.exact(linear_of_canonical(atom.b))  # type: ignore[attr-defined]
            yield divisor.plus(Linear.of_atom(atom), -1).plus(Linear.of_const(-1))

    def _multiples_above(self, atom: PrimExpr) -> Iterator[Linear]:
        """Every ``c`` such that a fact says ``a < c * b``, for ``a // b`` or ``a % b``, 0 <= a.

        Such facts are the ranges of fused loops: their extent is the product of two extents.
        """
        dividend, divisor = atom.a, atom.b  # type: ignore[attr-defined]
        if self.interval(dividend)[0] < 0 or self.interval(divisor)[0] < 0:
            return
        value = self.exact(linear_of_canonical(dividend))
        for fact in self.not_negative:
            if any(term not in fact.terms for term in value.terms):
                continue
            multiple = _quotient_of(fact.plus(value), divisor)
            if multiple is not None:
                yield multiple

    def _extremum_facts(self, atom: PrimExpr) -> Iterator[Linear]:
        """``min(a, b)`` is at most either operand, ``max(a, b)`` at least."""
        sign = 1 if type(atom) is x.Min else -1
        for operand in (atom.a, atom.b):  # type: ignore[attr-defined]
            value = self.exact(linear_of_canonical(operand))
            yield value.plus(Linear.of_atom(atom), -1).scaled(sign)


def _quotient_of(bound: Linear, divisor: PrimExpr) -> Linear | None:
    """``c`` where ``bound`` is ``c * divisor - 1`` or less by a constant; ``None`` otherwise."""
    if bound.const >= 0 or not bound.terms:
        return None
    total = Linear({}, 0)
    for atom, coefficient in bound.terms.items():
        factors = product_factors(atom)
        if divisor not in factors:
            return None
        factors.remove(divisor)
        rest = Linear.of_atom(product_atom(tuple(factors))) if factors else Linear.of_const(1)
        total = total.plus(rest, coefficient)
    return total


def _cancel(total: Linear, fact: Linear) -> Iterator[Linear]:
    for atom, c in fact.terms.items():
        have = total.terms.get(atom)
        if have is None or (have > 0) != (c > 0):
            continue
        common = math.gcd(have, c)
        times = abs(c) // common
        # ``total`` is an integer: it is >= 0 exactly where ``times * total + times - 1`` is.
        rest = total.scaled(times).plus(fact, -(abs(have) // common))
        yield Linear(rest.terms, rest.const + times - 1)
        return


def linear_of_canonical(e: PrimExpr) -> Linear:
    """A canonical expression as a linear sum; its atoms are not simplified."""
    kind = type(e)
    if kind is x.IntImm:
        return Linear.of_const(e.value)  # type: ignore[attr-defined]
    if kind is x.Add or kind is x.Sub:
        left = linear_of_canonical(e.a)  # type: ignore[attr-defined]
        return left.plus(linear_of_canonical(e.b), 1 if kind is x.Add else -1)  # type: ignore[attr-defined]
    if kind is x.Mul:
        factor = x.int_value(e.b)  # type: ignore[attr-defined]
        if factor is not None:
            return linear_of_canonical(e.a).scaled(factor)  # type: ignore[attr-defined]
    return Linear.of_atom(e)


def product_factors(atom: PrimExpr) -> list[PrimExpr]:
    """The factors of a left-nested product of atoms."""
    factors = []
    while type(atom) is x.Mul:
        factors.append(atom.b)
        atom = atom.a
    return [atom, *reversed(factors)]


# Factors with more nodes are not ordered by their text, which repeats shared sub-expressions.
_SHORT = 64


def _factor_key(factor: PrimExpr) -> tuple[int, int, str]:
    if isinstance(factor, Var):
        return 0, factor.uid, ""
    return (1, 0, str(factor)) if _is_short(factor) else (2, 0, "")


def _is_short(e: PrimExpr) -> bool:
    count, pending = 0, [e]
    while pending and count < _SHORT:
        count += 1
        pending.extend(children(pending.pop()))
    return not pending


def product_atom(factors: tuple[PrimExpr, ...]) -> PrimExpr:
    """The canonical atom of a product, independent of the order of its (short) factors."""
    flat = sorted((f for e in factors for f in product_factors(e)), key=_factor_key)
    result = flat[0]
    for factor in flat[1:]:
        result = x.Mul(result, factor)
    return result


def _mul(facts: Facts, e: x.Mul) -> Interval:
    if x.int_value(e.b) is not None:
        return _sum(facts, e)
    return facts.product_of((e.a, e.b)) or iv.of_dtype(e.dtype)


def _sum(facts: Facts, e: PrimExpr) -> Interval:
    total = linear_of_canonical(e)
    return facts.of_sum(total) if facts.is_exact(total) else iv.of_dtype(e.dtype)


def _floordiv(facts: Facts, e: x.FloorDiv) -> Interval:
    divisor = x.int_value(e.b)
    if divisor is not None and divisor > 0:
        return iv.floordiv(facts.interval(e.a), divisor)
    a, b = facts.interval(e.a), facts.interval(e.b)
    if a[0] >= 0 and b[0] >= 0:  # a quotient by zero is zero
        return 0, a[1]
    size = max(abs(a[0]), abs(a[1]))
    return (-size, size) if iv.is_within((-size, size), iv.INT64) else iv.INT64


def _floormod(facts: Facts, e: x.FloorMod) -> Interval:
    divisor = x.int_value(e.b)
    if divisor is not None and divisor > 0:
        return iv.floormod(facts.interval(e.a), divisor)
    b = facts.interval(e.b)  # the remainder has the sign of the divisor; by zero it is zero
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _cast(facts: Facts, e: x.Cast) -> Interval:
    source = e.value.dtype
    if not (source.is_int or source.is_bool):
        return iv.of_dtype(e.dtype)
    inner = facts.interval(e.value)
    return inner if iv.is_within(inner, iv.INT64) else iv.of_dtype(e.dtype)


def _call(facts: Facts, e: x.Call) -> Interval:
    if e.name == "if_then_else":
        return iv.union(facts.interval(e.args[1]), facts.interval(e.args[2]))
    return iv.of_dtype(e.dtype)


_INTERVALS: dict[type, Callable[[Facts, Any], Interval]] = {
    x.Add: _sum,
    x.Sub: _sum,
    x.Mul: _mul,
    x.FloorDiv: _floordiv,
    x.FloorMod: _floormod,
    x.Min: lambda f, e: iv.smaller(f.interval(e.a), f.interval(e.b)),
    x.Max: lambda f, e: iv.larger(f.interval(e.a), f.interval(e.b)),
    x.Select: lambda f, e: iv.union(f.interval(e.true_value), f.interval(e.false_value)),
    x.Cast: _cast,
    x.Call: _call,
}
