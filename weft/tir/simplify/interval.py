"""Intervals of integers, with infinite ends, and arithmetic on them."""

from __future__ import annotations

import math
from typing import TypeAlias

Bound: TypeAlias = "int | float"  # a float is an infinity
Interval: TypeAlias = "tuple[Bound, Bound]"

EVERYTHING: Interval = (-math.inf, math.inf)


def product(a: Interval, b: Interval) -> Interval:
    ends = [0 if p == 0 or q == 0 else p * q for p in a for q in b]
    return min(ends), max(ends)


def _quotient(end: Bound, divisor: int) -> Bound:
    return end if isinstance(end, float) else end // divisor


def floordiv(a: Interval, divisor: int) -> Interval:
    """For a divisor above zero."""
    return _quotient(a[0], divisor), _quotient(a[1], divisor)


def floormod(a: Interval, divisor: int) -> Interval:
    """For a divisor above zero."""
    low, high = a
    if isinstance(low, float) or isinstance(high, float) or low // divisor != high // divisor:
        return 0, divisor - 1
    return low % divisor, high % divisor


def union(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def smaller(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


def larger(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def finite(end: Bound) -> int | None:
    return None if isinstance(end, float) else end
