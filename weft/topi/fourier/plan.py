"""The passes of a fast Fourier transform: its factors and their order, by the instructions."""

from __future__ import annotations

import math
from functools import lru_cache

from weft.support.dataclass import dataclass
from weft.topi.fourier.butterflies import PRIMES, operations

# Longer butterflies would spill most of their numbers.
_LARGEST_RADIX = 32
# Numbers, of two vectors each, that stay in 32 registers beside factors.
_REGISTERS = 14


def is_smooth(size: int) -> bool:
    """Whether all prime factors are small."""
    for prime in PRIMES:
        while size % prime == 0:
            size //= prime
    return size == 1


_RADICES = tuple(r for r in range(2, _LARGEST_RADIX + 1) if is_smooth(r))


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of Stockham's algorithm; ``done`` and ``left`` are the factors behind and ahead.

    It combines elements that lie ``done * left`` apart.
    """

    radix: int
    done: int
    left: int


def power_of_two(limit: int) -> int:
    """The largest power of two up to ``limit``."""
    return 1 << (limit.bit_length() - 1)


@lru_cache(maxsize=256)
def passes(size: int, lanes: int) -> tuple[Pass, ...]:
    """The passes of a line of a smooth size; ``lanes`` is 0 if every number is a full vector."""
    if size == 1:
        return (Pass(1, 1, 1),)
    best: dict[int, tuple[float, tuple[Pass, ...]]] = {size: (0.0, ())}
    for done in _divisors(size):
        left = size // done
        found = []
        for radix in (r for r in _RADICES if left % r == 0):
            one = Pass(radix, done, left // radix)
            cost, following = best[done * radix]
            found.append((_cost(one, lanes) + cost, (one, *following)))
        best[done] = min(found, key=lambda pair: pair[0])
    return best[1][1]


def _divisors(size: int) -> list[int]:
    """The divisors below ``size``, the largest first."""
    low = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    return sorted({*low, *(size // d for d in low)} - {size}, reverse=True)


def _cost(one: Pass, lanes: int) -> float:
    """Vector instructions of a pass."""
    radix = one.radix
    count = operations(radix) + 4 * radix + 8 * max(0, radix - _REGISTERS)
    if one.left > 1:
        count += 6 * (radix - 1)
    if not lanes:
        return count * one.left * one.done
    if one.done == 1:
        width = min(lanes, power_of_two(one.left))
        return (count + 2 * radix * width.bit_length()) * -(-one.left // width)
    width = min(lanes, power_of_two(one.done))
    return count * one.left * -(-one.done // width)
