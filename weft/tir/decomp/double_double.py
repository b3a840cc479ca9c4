"""``y * log(a)`` in double-double arithmetic, for ``pow``.

The relative error of ``exp`` is the absolute error of its argument, which reaches 709 here, so the
logarithm needs about ten more bits than float64 has. Double-double sums and products follow Dekker
and Knuth, with FMAs for exact products.
"""

from __future__ import annotations

from typing import TypeAlias

from weft.tir.decomp.build import Body
from weft.tir.decomp.coefficients import ATANH_TAIL
from weft.tir.decomp.log import split
from weft.tir.expr import PrimExpr

Pair: TypeAlias = "tuple[PrimExpr, PrimExpr]"

# (high, low) pairs of ln 2, whose high part has a short mantissa so that e * high is exact, 2/3,
# 2/5.
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_TWO_FIFTHS = (0.4, -2.2204460492503132e-17)


def _fast_sum(body: Body, a: PrimExpr, b: PrimExpr) -> Pair:
    """``a + b`` exactly, for ``|a| >= |b|`` (Dekker's fast two-sum)."""
    total = body.let("sum", a + b)
    return total, body.let("sum_error", b - (total - a))


def _sum(body: Body, a: PrimExpr, b: PrimExpr) -> Pair:
    """``a + b`` exactly (Knuth's two-sum)."""
    total = body.let("sum", a + b)
    rest = body.let("rest", total - a)
    return total, body.let("sum_error", (a - (total - rest)) + (b - rest))


def _product(body: Body, a: PrimExpr, b: PrimExpr) -> Pair:
    """``a * b`` exactly (two-product by FMA)."""
    total = body.let("product", a * b)
    return total, body.let("product_error", body.fma(a, b, body.real(0.0) - total))


def _times(body: Body, a: Pair, b: Pair) -> Pair:
    high, low = _product(body, a[0], b[0])
    return _fast_sum(body, high, body.fma(a[0], b[1], body.fma(a[1], b[0], low)))


def _plus(body: Body, a: Pair, b: Pair) -> Pair:
    high, low = _sum(body, a[0], b[0])
    return _fast_sum(body, high, low + (a[1] + b[1]))


def _quotient(body: Body, a: PrimExpr, b: Pair) -> Pair:
    first = body.let("quotient", a / b[0])
    rest = body.fma(body.real(0.0) - first, b[0], a) - first * b[1]
    return _fast_sum(body, first, rest / b[0])


def _constant(body: Body, parts: tuple[float, float]) -> Pair:
    return body.real(parts[0]), body.real(parts[1])


def _log(body: Body, a: PrimExpr) -> Pair:
    """``log(a) = e ln 2 + 2s + s z (2/3 + z (2/5 + z tail(z)))`` with ``z = s*s``."""
    e, f = split(body, a)
    s = _quotient(body, f, _sum(body, body.real(2.0), f))
    z = _times(body, s, s)
    tail = body.polynomial("tail", z[0], ATANH_TAIL)
    inner = _plus(body, _constant(body, _TWO_FIFTHS), _product(body, z[0], tail))
    inner = _plus(body, _constant(body, _TWO_THIRDS), _times(body, z, inner))
    series = _times(body, s, _times(body, z, inner))
    two = body.real(2.0)
    mantissa = _plus(body, (s[0] * two, s[1] * two), series)
    exponent = _fast_sum(body, e * body.real(_LN2[0]), e * body.real(_LN2[1]))
    return _plus(body, exponent, mantissa)


def log_times(body: Body, a: PrimExpr, y: PrimExpr) -> Pair:
    """``y * log(a)`` for finite positive ``a``; unspecified for others."""
    high, low = _log(body, a)
    first, error = _product(body, high, y)
    return _fast_sum(body, first, body.fma(low, y, error))
