"""Bounds of sums and products of sizes: the least and the greatest value, ``None`` if unbounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft.ir.size_range import range_of

Bounds: TypeAlias = "tuple[int | None, int | None]"


def of_symbol(symbol: str) -> Bounds:
    """The least and greatest multiple in the range of a symbol."""
    sizes = range_of(symbol)
    multiple = sizes.multiple
    high = None if sizes.high is None else sizes.high // multiple * multiple
    return -(-sizes.low // multiple) * multiple, high


def of_sum(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of ``x + y``."""
    return (None if a[0] is None or b[0] is None else a[0] + b[0],
            None if a[1] is None or b[1] is None else a[1] + b[1])


def of_quotient(a: Bounds, denominator: int) -> Bounds:
    """The bounds of ``x // denominator``, which is above 0."""
    low, high = a
    return (None if low is None else low // denominator,
            None if high is None else high // denominator)


def of_extreme(parts: Sequence[Bounds], *, is_max: bool) -> Bounds:
    """The bounds of the largest or smallest of several values."""
    lows = [low for low, _ in parts if low is not None]
    highs = [high for _, high in parts if high is not None]
    if is_max:
        return (max(lows, default=None), max(highs) if len(highs) == len(parts) else None)
    return (min(lows) if len(lows) == len(parts) else None, min(highs, default=None))


def of_product(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of ``x * y``."""
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    if None not in (*a, *b):
        corners = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(corners), max(corners)
    for x, y in ((a, b), (b, a)):
        if x[0] is not None and x[0] >= 0 and y[0] is not None and y[0] >= 0:
            high = None if x[1] is None or y[1] is None else x[1] * y[1]
            return x[0] * y[0], high
        if x[1] is not None and x[1] <= 0 and y[0] is not None and y[0] >= 0:
            low = None if x[0] is None or y[1] is None else x[0] * y[1]
            return low, x[1] * y[0]
    return None, None
