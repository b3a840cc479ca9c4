"""How often loops whose bounds depend on others run, and how often conditions hold, on average.

Sampled values of the variables that bounds and conditions mention stand for all iterations: of a
long loop the first and the last, where paddings end, and some in between, which count for the rest.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var
from weft.tir.visitor import nodes_of

_ENDS, _BETWEEN = 2, 14  # values at each end of a loop, and in between
_GOLDEN = (math.sqrt(5) - 1) / 2  # spreads the values, with no period that ``%`` could share
_MOST = 160  # samples; more are thinned
Values = Mapping[Var, int]

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    x.Add: operator.add, x.Sub: operator.sub, x.Mul: operator.mul, x.FloorDiv: operator.floordiv,
    x.FloorMod: operator.mod, x.Min: min, x.Max: max, x.LT: operator.lt, x.LE: operator.le,
    x.GT: operator.gt, x.GE: operator.ge, x.EQ: operator.eq, x.NE: operator.ne,
    x.And: operator.and_, x.Or: operator.or_}


class UnknownValueError(Exception):
    """An expression depends on more than sampled loops."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of loop variables, each with the number of iterations that it stands for."""

    points: Sequence[tuple[float, Values]] = ((1.0, {}),)

    def mean(self, e: PrimExpr) -> float:
        """The mean of an expression; ``UnknownValueError`` if it depends on more."""
        constant = x.int_value(e)
        if constant is not None:
            return float(constant)
        total = sum(weight for weight, _ in self.points)
        return sum(w * max(0, evaluate(e, v)) for w, v in self.points) / total if total else 0.0

    def where(self, condition: PrimExpr, *, holds: bool) -> Samples:
        """The samples for which a condition holds or not."""
        return Samples([(w, v) for w, v in self.points if bool(evaluate(condition, v)) == holds])

    def within(self, var: Var, first: PrimExpr, extent: PrimExpr) -> Samples:
        """The samples with values of the variable of a loop."""
        found = [(weight * share, {**values, var: at})
                 for weight, values in self.points
                 for at, share in _values(evaluate(first, values), evaluate(extent, values))]
        if len(found) > _MOST:
            found = [found[int((i * _GOLDEN) % 1 * len(found))] for i in range(_MOST)]
        return Samples(found)


def _values(first: int, extent: int) -> list[tuple[int, float]]:
    """Values of a loop variable and how many iterations each stands for."""
    if extent <= 2 * _ENDS + _BETWEEN:
        return [(first + i, 1.0) for i in range(extent)]
    rest = extent - 2 * _ENDS
    ends = [*range(_ENDS), *range(extent - _ENDS, extent)]
    between = [_ENDS + int((i * _GOLDEN) % 1 * rest) for i in range(1, _BETWEEN + 1)]
    return [*((first + i, 1.0) for i in ends), *((first + i, rest / _BETWEEN) for i in between)]


def evaluate(e: PrimExpr, values: Values) -> int:
    """An integer expression of loop variables; ``UnknownValueError`` for any other."""
    match e:
        case x.IntImm(value=value):
            return value
        case Var():
            if e in values:
                return values[e]
        case x.Cast(value=inner) | x.Call(name="likely", args=(inner,)):
            return evaluate(inner, values)
        case x.Not(a=a):
            return not evaluate(a, values)
        case x.FloorDiv(b=b) | x.FloorMod(b=b) if not evaluate(b, values):
            raise UnknownValueError(f"{e}, which divides by zero")
        case _ if (apply := _OPERATORS.get(type(e))) is not None:
            return apply(evaluate(e.a, values), evaluate(e.b, values))  # type: ignore[attr-defined]
    raise UnknownValueError(str(e))


def mentioned(roots: Iterable[PrimExpr]) -> set[Var]:
    """The variables of expressions."""
    return {e for e in nodes_of(roots) if isinstance(e, Var)}
