"""Ranges of index expressions when inner loop variables vary and enclosing ones are fixed.

A span is ``base + [low, high]``: ``base`` holds the enclosing loop variables, ``low`` and ``high``
are usually integers. Separating them gives computed regions a constant extent: ``x // 16`` for
``x`` in ``16 * i + [0, 15]`` is ``i + [0, 0]``, whatever ``i`` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir import Analyzer
from weft.tir import expr as tir
from weft.tir.visitor import rebuild_binary

ZERO = tir.const(0)


@dataclass(frozen=True, slots=True)
class Span:
    """``base + [low, high]``, both ends included."""

    base: tir.PrimExpr
    low: tir.PrimExpr
    high: tir.PrimExpr

    @property
    def is_point(self) -> bool:
        # Expressions are interned, so equal ones are identical.
        return self.low is self.high

    @property
    def lowest(self) -> tir.PrimExpr:
        return self.base + self.low

    @property
    def highest(self) -> tir.PrimExpr:
        return self.base + self.high

    @property
    def width(self) -> tir.PrimExpr:
        """The number of values."""
        return self.high - self.low + 1


MaybeSpan: TypeAlias = "Span | None"


def point(value: tir.PrimExpr) -> Span:
    """The span of one value."""
    return Span(value, ZERO, ZERO) if tir.int_value(value) is None else Span(ZERO, value, value)


def counted(extent: tir.PrimExpr) -> Span:
    """The values of a loop variable: ``[0, extent - 1]``."""
    return Span(ZERO, ZERO, extent - 1)


class SpanOf:
    """Evaluates index expressions to spans; ``None`` if the range is unknown.

    ``varying`` gives the spans of the variables that vary; every other variable is fixed.
    """

    def __init__(self, analyzer: Analyzer, varying: Mapping[tir.Var, MaybeSpan]) -> None:
        self.analyzer = analyzer
        self._memo: dict[tir.PrimExpr, MaybeSpan] = {**varying}

    def __call__(self, e: tir.PrimExpr) -> MaybeSpan:
        if e in self._memo:
            return self._memo[e]
        result = self._memo[e] = self._evaluate(e)
        return result

    def _evaluate(self, e: tir.PrimExpr) -> MaybeSpan:
        match e:
            case tir.Var() | tir.IntImm():
                return point(e)
            case (tir.Add() | tir.Sub() | tir.Mul() | tir.FloorDiv() | tir.FloorMod() | tir.Min()
                  | tir.Max()):
                return self._binary(e, self(e.a), self(e.b))
            case tir.Cast() if _keeps_indices(e.value.dtype) and _keeps_indices(e.dtype):
                return self(e.value)
            case tir.Select():
                return self.hull(self(e.true_value), self(e.false_value))
            case tir.Call() if e.name == "if_then_else":
                return self.hull(self(e.args[1]), self(e.args[2]))
        return None

    def _binary(self, e: tir.Binary, a: MaybeSpan, b: MaybeSpan) -> MaybeSpan:
        if a is None or b is None:
            return self._remainder_only(e, b)
        if a.is_point and b.is_point:
            return point(rebuild_binary(type(e), a.lowest, b.lowest))
        match e:
            case tir.Add():
                return Span(a.base + b.base, a.low + b.low, a.high + b.high)
            case tir.Sub():
                return Span(a.base - b.base, a.low - b.high, a.high - b.low)
            case tir.Mul():
                return self._product(a, b)
            case tir.FloorDiv():
                return self._quotient(a, b)
            case tir.FloorMod():
                return self._remainder(a, b)
            case tir.Min() | tir.Max():
                return self._extremum(e, a, b)
        return None

    def _remainder_only(self, e: tir.Binary, b: MaybeSpan) -> MaybeSpan:
        divisor = _constant(b)
        # A remainder is bounded by its divisor even where the dividend is data.
        if type(e) is tir.FloorMod and divisor is not None and divisor > 0:
            return counted(tir.const(divisor))
        return None

    def _product(self, a: Span, b: Span) -> MaybeSpan:
        if a.is_point:
            a, b = b, a
        if not b.is_point:
            return None
        factor = b.lowest
        # A negative factor swaps the ends; with an unknown sign, neither end is known.
        lowest, highest = self.analyzer.int_bounds(factor)
        low, high = a.low * factor, a.high * factor
        if lowest is not None and lowest >= 0:
            return Span(a.base * factor, low, high)
        if highest is not None and highest <= 0:
            return Span(a.base * factor, high, low)
        return None

    def _quotient(self, a: Span, b: Span) -> MaybeSpan:
        divisor = _constant(b)
        if divisor is None or divisor <= 0:
            return None
        step = self._step(a.base, divisor)
        first, last = tir.floordiv(a.low, tir.const(step)), tir.floordiv(a.high, tir.const(step))
        if step == divisor:
            return Span(self.analyzer.simplify(tir.floordiv(a.base, tir.const(divisor))), first,
                        last)
        # With base = step * q, (base + x) // divisor = (q + x // step) // steps. Adding d to the
        # dividend of that quotient increases it by at most ceil(d / steps).
        steps = divisor // step
        reach = tir.floordiv(last - first + (steps - 1), tir.const(steps))
        return Span(tir.floordiv(a.base + first * step, tir.const(divisor)), ZERO, reach)

    def _remainder(self, a: Span, b: Span) -> MaybeSpan:
        divisor = _constant(b)
        if divisor is None or divisor <= 0:
            return None
        step = self._step(a.base, divisor)
        low, high = tir.int_value(a.low), tir.int_value(a.high)
        if low is None or high is None or low // step != high // step:
            return counted(tir.const(divisor))
        # All values lie between two multiples of ``step``, and so does their remainder, because
        # ``step`` divides the divisor: it cannot wrap around.
        start = low // step * step
        base = self.analyzer.simplify(tir.floormod(a.base + start, tir.const(divisor)))
        return Span(base, tir.const(low - start), tir.const(high - start))

    def _step(self, base: tir.PrimExpr, divisor: int) -> int:
        """The largest divisor of ``divisor`` that ``base`` is known to be a multiple of."""
        for step in range(divisor, 1, -1):
            if divisor % step == 0 and self._divides(base, step):
                return step
        return 1

    def _divides(self, base: tir.PrimExpr, divisor: int) -> bool:
        return tir.int_value(self.analyzer.simplify(tir.floormod(base, tir.const(divisor)))) == 0

    def _extremum(self, e: tir.Binary, a: Span, b: Span) -> MaybeSpan:
        base = rebuild_binary(type(e), a.lowest, b.lowest)
        # Operands that grow by at most their widths move the extremum by at most the larger width.
        widest = tir.maximum(a.high - a.low, b.high - b.low)
        return Span(ZERO, base, rebuild_binary(type(e), a.highest, b.highest)) if (
            tir.int_value(base) is not None
        ) else Span(base, ZERO, widest)

    def hull(self, a: MaybeSpan, b: MaybeSpan) -> MaybeSpan:
        """The smallest span known to contain both."""
        if a is None or b is None or a == b:
            return a if a == b else None
        offset = ZERO if a.base is b.base else self.analyzer.simplify(b.base - a.base)
        if tir.int_value(offset) is not None:
            low = self._smaller(a.low, b.low + offset)
            return Span(a.base, low, self._larger(a.high, b.high + offset))
        # The bases differ by a variable; the union has a constant extent only if that is bounded.
        lowest = tir.minimum(a.lowest, b.lowest)
        reach = self.analyzer.simplify(tir.maximum(a.highest, b.highest) - lowest)
        bound = self.analyzer.int_bounds(reach)[1]
        return None if bound is None else Span(lowest, ZERO, tir.const(bound))

    def _smaller(self, a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
        return a if a is b else self.analyzer.simplify(tir.minimum(a, b))

    def _larger(self, a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
        return a if a is b else self.analyzer.simplify(tir.maximum(a, b))


def _keeps_indices(dtype: DType) -> bool:
    """Whether the dtype holds any index; narrower integers may wrap around."""
    return dtype.is_int and dtype.bits >= 32


def _constant(span: MaybeSpan) -> int | None:
    return tir.int_value(span.lowest) if span is not None and span.is_point else None
