"""Linear sums ``c0 + c1 * atom1 + ...`` over int64: the canonical form of index arithmetic.

Atoms are interned expressions; in index arithmetic none of them is a sum. Reordering is correct
modulo 2**64; terms keep the order in which they first appeared.
"""

from __future__ import annotations

import math

from weft.tir import expr as x
from weft.tir.expr import IntImm, PrimExpr, wrap

_HALF = 2**63


class Linear:
    """An immutable sum; ``terms`` maps atoms to nonzero coefficients."""

    __slots__ = ("_expr", "const", "terms")

    def __init__(self, terms: dict[PrimExpr, int], const: int) -> None:
        self.terms = terms
        self.const = const
        self._expr: PrimExpr | None = None

    @staticmethod
    def of_atom(atom: PrimExpr, coefficient: int = 1) -> Linear:
        return Linear({atom: coefficient}, 0)

    @staticmethod
    def of_const(value: int) -> Linear:
        return Linear({}, value)

    def wrapped(self) -> Linear:
        """The sum with constant and coefficients wrapped to int64."""
        if -_HALF <= self.const < _HALF:
            for c in self.terms.values():
                if not -_HALF <= c < _HALF:
                    break
            else:
                return self
        terms = {a: wrap(c, x.int64) for a, c in self.terms.items()}
        return Linear({a: c for a, c in terms.items() if c}, wrap(self.const, x.int64))

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def is_zero(self) -> bool:
        return not self.terms and self.const == 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """``self + factor * other``."""
        if factor == 0:
            return self
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + factor * c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, self.const + factor * other.const)

    def scaled(self, factor: int) -> Linear:
        if factor == 1:
            return self
        if factor == 0:
            return Linear({}, 0)
        return Linear({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def divided(self, divisor: int) -> Linear:
        """The quotient by ``divisor``, which must divide all coefficients and the constant."""
        return Linear({a: c // divisor for a, c in self.terms.items()}, self.const // divisor)

    def split_by(self, divisor: int) -> tuple[Linear, Linear]:
        """``(quotient, rest)`` with ``self == divisor * quotient + rest`` term by term.

        The rest contains the terms whose coefficient ``divisor`` does not divide, and a constant in
        ``[0, divisor)``.
        """
        whole = {a: c // divisor for a, c in self.terms.items() if c % divisor == 0}
        rest = {a: c for a, c in self.terms.items() if c % divisor}
        quotient, remainder = divmod(self.const, divisor)
        return Linear(whole, quotient), Linear(rest, remainder)

    def gcd(self) -> int:
        """The greatest common divisor of the coefficients, excluding the constant."""
        return math.gcd(*self.terms.values())

    def to_expr(self) -> PrimExpr:
        """The sum as an expression: positive terms first, then the negative ones."""
        if self._expr is None:
            self._expr = self._build()
        return self._expr

    def _build(self) -> PrimExpr:
        if not self.terms:
            return IntImm(self.const, x.int64)
        total: PrimExpr | None = None
        for atom, c in self.terms.items():
            if c > 0:
                term = _times(atom, c)
                total = term if total is None else x.Add(total, term)
        if total is None:
            total = IntImm(self.const, x.int64)
            const = 0
        else:
            const = self.const
        for atom, c in self.terms.items():
            if c < 0:
                total = x.Sub(total, _times(atom, -c))
        if const > 0:
            return x.Add(total, IntImm(const, x.int64))
        return total if const == 0 else x.Sub(total, IntImm(-const, x.int64))


def _times(atom: PrimExpr, coefficient: int) -> PrimExpr:
    return atom if coefficient == 1 else x.Mul(atom, IntImm(coefficient, x.int64))
