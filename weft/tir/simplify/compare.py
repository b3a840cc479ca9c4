"""Comparisons of linear sums: decided by the facts if possible, else in a normal form.

Terms move to the other side only if neither side can overflow: for data, ``x <= y`` is not
equivalent to ``x < y + 1``.
"""

from __future__ import annotations

from weft.tir import expr as x
from weft.tir.expr import FALSE, TRUE, PrimExpr
from weft.tir.simplify.facts import Facts
from weft.tir.simplify.linear import Linear

INEQUALITIES = (x.LT, x.LE, x.GT, x.GE)


def as_nonnegative(kind: type, a: Linear, b: Linear) -> Linear:
    """The sum that is >= 0 exactly where ``kind(a, b)`` holds."""
    if kind in (x.GT, x.GE):
        a, b = b, a
    total = b.plus(a, -1)
    return Linear(total.terms, total.const - 1) if kind in (x.LT, x.GT) else total


def negated(total: Linear) -> Linear:
    """The sum that is >= 0 exactly where ``total`` is negative."""
    return Linear.of_const(-1).plus(total, -1)


def inequality(facts: Facts, kind: type, a: Linear, b: Linear) -> PrimExpr:
    """The inequality ``kind(a, b)`` of sums that do not overflow."""
    total = as_nonnegative(kind, a, b)
    if facts.is_not_negative(total):
        return TRUE
    if facts.is_not_negative(negated(total)):
        return FALSE
    left, right = _sides(total)
    if facts.is_exact(left) and facts.is_exact(right):
        node = x.GE if left.is_const else x.LT
        pair = (right, left) if left.is_const else (left, right)
        return node(pair[0].to_expr(), pair[1].to_expr())
    return kind(a.to_expr(), b.to_expr())  # type: ignore[no-any-return]


def _sides(total: Linear) -> tuple[Linear, Linear]:
    """``(left, right)`` so that ``left < right`` is equivalent to ``total >= 0``.

    ``left <= right`` if ``left`` is constant. All coefficients are positive and divided by their
    gcd.
    """
    divisor = total.gcd()
    if divisor > 1:
        total = Linear({a: c // divisor for a, c in total.terms.items()}, total.const // divisor)
    right = Linear({a: c for a, c in total.terms.items() if c > 0}, 0)
    left = Linear({a: -c for a, c in total.terms.items() if c < 0}, 0)
    if left.is_const:
        return Linear.of_const(-total.const), right
    return left, Linear(right.terms, total.const + 1)


def equality(facts: Facts, kind: type, a: Linear, b: Linear) -> PrimExpr:
    """``a == b`` or ``a != b`` of sums that do not overflow."""
    total = a.plus(b, -1)
    same, other = (TRUE, FALSE) if kind is x.EQ else (FALSE, TRUE)
    if total.is_const:
        return same if total.const == 0 else other
    divisor = total.gcd()
    above = Linear(total.terms, total.const - 1)
    if total.const % divisor or facts.is_not_negative(above):
        return other
    if facts.is_not_negative(negated(total)):
        return other
    total = total.divided(divisor)
    right = Linear({a: -c for a, c in total.terms.items() if c < 0}, 0)
    left = Linear({a: c for a, c in total.terms.items() if c > 0}, 0)
    if left.is_const:
        left, right, total = right, left, total.scaled(-1)
    right = Linear(right.terms, -total.const)
    if facts.is_exact(left) and facts.is_exact(right):
        return kind(left.to_expr(), right.to_expr())  # type: ignore[no-any-return]
    return kind(a.to_expr(), b.to_expr())  # type: ignore[no-any-return]
