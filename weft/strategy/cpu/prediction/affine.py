"""Indices as affine forms over loops, whose variables are split where ``//`` and ``%`` cut them.

A fused loop of ``a * b`` iterations whose body reads ``i // b`` and ``i % b`` is two loops for all
that its accesses say: each variable becomes a sum of digits, so that divisions and remainders of it
are affine again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var, int_value
from weft.tir.visitor import children, nodes_of


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """A part of a loop: ``extent`` iterations, whose number has this ``scale`` in the variable."""

    name: str
    extent: float
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Form:
    """``constant`` plus each digit times its coefficient."""

    constant: float
    terms: Mapping[Digit, float] = field(default_factory=dict)

    def reach(self) -> float:
        """The largest value less the smallest."""
        return sum(abs(k) * (d.extent - 1) for d, k in self.terms.items())


class Forms:
    """The forms of the integer expressions of a function, of whose variables the digits are known.

    A part that is not affine counts as a digit of its own, which varies with all that it reads.
    """

    def __init__(self) -> None:
        self.digits: dict[Var, tuple[Digit, ...]] = {}
        self.parents: dict[Digit, frozenset[Digit]] = {}  # of digits that stand for other parts
        self._lets: dict[Var, PrimExpr] = {}
        self._known: dict[PrimExpr, Form] = {}

    def define(self, var: Var, extent: float, divisors: Iterable[int]) -> tuple[Digit, ...]:
        """The digits of a loop variable, the outermost first."""
        if var in self.digits:  # a variable of two loops in turn: forms of the first are over
            self._known.clear()
        scales = [1]
        for divisor in sorted(set(divisors)):
            if divisor % scales[-1] == 0 and scales[-1] < divisor < extent:
                scales.append(divisor)
        ends = [*scales[1:], extent]
        made = [Digit(var.name, end / scale, scale)
                for scale, end in zip(scales, ends, strict=True)]
        self.digits[var] = tuple(reversed(made))
        return self.digits[var]

    def let(self, var: Var, value: PrimExpr) -> None:
        """Give a variable of a ``LetStmt`` the form of its value."""
        self._lets[var] = value
        self._known.pop(var, None)

    def of(self, e: PrimExpr) -> Form:
        """The form of an expression; of a vector, that of its first lane."""
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._form(e)
        return found

    def _form(self, e: PrimExpr) -> Form:
        match e:
            case x.IntImm(value=value):
                return Form(value)
            case Var() if e in self._lets:
                return self.of(self._lets[e])
            case Var():
                return Form(0, {d: d.scale for d in self.digits.get(e, ())})
            case x.Add(a=a, b=b):
                return _sum(self.of(a), self.of(b), 1)
            case x.Sub(a=a, b=b):
                return _sum(self.of(a), self.of(b), -1)
            case x.Mul(a=a, b=b) if (factor := int_value(b)) is not None:
                return _times(self.of(a), factor)
            case x.Mul(a=a, b=b) if (factor := int_value(a)) is not None:
                return _times(self.of(b), factor)
            case x.Ramp(base=a) | x.Broadcast(value=a) | x.Cast(value=a):
                return self.of(a)
            case x.Min(a=a, b=b) | x.Max(a=a, b=b):
                return self.of(b if int_value(a) is not None else a)
            case x.FloorDiv(a=a, b=b) | x.FloorMod(a=a, b=b) if (by := int_value(b)):
                return self._divided(e, self.of(a), by)
        return self._opaque(e)

    def _divided(self, e: PrimExpr, form: Form, by: int) -> Form:
        """A quotient or remainder: exact if the rest stays below the divisor."""
        whole = {d: k for d, k in form.terms.items() if k % by == 0}
        rest = {d: k for d, k in form.terms.items() if k % by}
        reach = Form(0, rest).reach()
        if isinstance(e, x.FloorMod):
            if reach < by:
                return Form(form.constant % by, rest)
            return self._digit(e, min(by, reach + 1), rest)
        scaled = {d: k / by for d, k in whole.items()}
        if reach < by:
            return Form(form.constant // by, scaled)
        part = self._digit(e, 1 + reach // by, rest)
        return Form(form.constant // by, {**scaled, **part.terms})

    def _digit(self, e: PrimExpr, extent: float, of: Iterable[Digit]) -> Form:
        digit = Digit(type(e).__name__, extent)
        self.parents[digit] = frozenset(of)
        return Form(0, {digit: 1})

    def _opaque(self, e: PrimExpr) -> Form:
        """A part that no rule covers, as an index that is read from memory."""
        below: dict[Digit, float] = {}
        for child in children(e):
            below |= self.of(child).terms
        extent = 1.0
        for digit in below:
            extent *= digit.extent
        return self._digit(e, extent, below) if below else Form(0)


def divisors_of(roots: Iterable[PrimExpr]) -> dict[Var, set[int]]:
    """For each variable the numbers at which quotients and remainders cut its range."""
    found: dict[Var, set[int]] = {}
    for e in nodes_of(roots):
        if isinstance(e, (x.FloorDiv, x.FloorMod)):
            _cut(e, found)
    return found


def _cut(e: PrimExpr, found: dict[Var, set[int]]) -> tuple[Var, int] | None:
    """The variable of a chain of quotients and remainders, and the scale of its last digit."""
    if isinstance(e, Var):
        return e, 1
    if not isinstance(e, (x.FloorDiv, x.FloorMod)):
        return None
    inner, by = _cut(e.a, found), int_value(e.b)
    if inner is None or by is None:
        return None
    var, scale = inner
    found.setdefault(var, set()).add(scale * by)
    return (var, scale * by) if isinstance(e, x.FloorDiv) else (var, scale)


def _sum(a: Form, b: Form, sign: int) -> Form:
    terms = dict(a.terms)
    for digit, k in b.terms.items():
        terms[digit] = terms.get(digit, 0) + sign * k
    return Form(a.constant + sign * b.constant, {d: k for d, k in terms.items() if k})


def _times(a: Form, factor: int) -> Form:
    return Form(a.constant * factor, {d: k * factor for d, k in a.terms.items()} if factor else {})
