"""Interval arithmetic on integers.

An infinite end marks index arithmetic with an unknown bound, which lies within ``INDEX_LIMIT`` and
does not overflow. Data always has finite ends, at worst those of its dtype.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from weft.ir.dtype import DType

Bound: TypeAlias = "int | float"  # a float is an infinity
Interval: TypeAlias = "tuple[Bound, Bound]"

EVERYTHING: Interval = (-math.inf, math.inf)
INT64: Interval = (-(2**63), 2**63 - 1)

# Bound of index arithmetic: extents, offsets and sizes of arrays in bytes.
INDEX_LIMIT = 2**62
# Data of at most this magnitude may be added to or multiplied with an index of unknown bound.
SMALL_DATA = 2**48


def of_dtype(dtype: DType) -> Interval:
    """The range of an integer dtype or bool; unbounded for other dtypes."""
    if dtype.is_bool:
        return 0, 1
    if not dtype.is_int:
        return EVERYTHING
    if dtype.code == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def is_within(inner: Interval, outer: Interval) -> bool:
    """Whether ``inner`` lies in the finite interval ``outer``; infinite ends count as inside."""
    low, high = inner
    return (isinstance(low, float) or low >= outer[0]) and (
        isinstance(high, float) or high <= outer[1])


def is_small(a: Interval) -> bool:
    """Whether the finite ends allow arithmetic with an unbounded index."""
    return is_within(a, (-SMALL_DATA, SMALL_DATA))


def least(a: Bound, b: Bound) -> Bound:
    """The smaller one; an infinite end counts as ``INDEX_LIMIT``."""
    return a if _size(a) <= _size(b) else b


def greatest(a: Bound, b: Bound) -> Bound:
    """The larger one; an infinite end counts as ``INDEX_LIMIT``."""
    return a if _size(a) >= _size(b) else b


def _size(end: Bound) -> int:
    if isinstance(end, float):
        return INDEX_LIMIT if end > 0 else -INDEX_LIMIT
    return end


def common(a: Interval, b: Interval) -> Interval:
    """The intersection."""
    return greatest(a[0], b[0]), least(a[1], b[1])


def product(a: Interval, b: Interval) -> Interval:
    ends = [0 if p == 0 or q == 0 else p * q for p in a for q in b]
    return min(ends), max(ends)


def _quotient(end: Bound, divisor: int) -> Bound:
    return end if isinstance(end, float) else end // divisor


def floordiv(a: Interval, divisor: int) -> Interval:
    """The quotients by a positive divisor."""
    return _quotient(a[0], divisor), _quotient(a[1], divisor)


def floormod(a: Interval, divisor: int) -> Interval:
    """The remainders by a positive divisor."""
    low, high = a
    if isinstance(low, float) or isinstance(high, float) or low // divisor != high // divisor:
        return 0, divisor - 1
    return low % divisor, high % divisor


def union(a: Interval, b: Interval) -> Interval:
    return least(a[0], b[0]), greatest(a[1], b[1])


def smaller(a: Interval, b: Interval) -> Interval:
    return least(a[0], b[0]), least(a[1], b[1])


def larger(a: Interval, b: Interval) -> Interval:
    return greatest(a[0], b[0]), greatest(a[1], b[1])


def finite(end: Bound) -> int | None:
    return None if isinstance(end, float) else end
