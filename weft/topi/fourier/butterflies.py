"""Fourier transforms of a few complex numbers, as straight-line arithmetic in registers.

A number is a scalar or a vector of independent numbers: the butterflies are the same. A size splits
into two factors (Cooley and Tukey) down to 2, 4 and odd primes. For an odd prime the sums over
``x[j] + x[p - j]`` and ``x[j] - x[p - j]`` take cosines and sines alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from weft.tir import PrimExpr

# The factors of sizes that have passes; a larger one costs more than a convolution.
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)


class Term(NamedTuple):
    """An expression or its negative, so that a change of sign costs no instruction."""

    value: PrimExpr
    is_negative: bool = False

    def __neg__(self) -> Term:
        return Term(self.value, not self.is_negative)

    def __add__(self, other: Term) -> Term:  # type: ignore[override]
        if self.is_negative == other.is_negative:
            return Term(self.value + other.value, self.is_negative)
        first, second = (other, self) if self.is_negative else (self, other)
        return Term(first.value - second.value)

    def __sub__(self, other: Term) -> Term:
        return self + -other

    def times(self, factor: PrimExpr | float) -> Term:
        return Term(self.value * factor, self.is_negative)

    def plain(self) -> PrimExpr:
        return self.value * -1.0 if self.is_negative else self.value


class Number(NamedTuple):
    """A complex number."""

    real: Term
    imaginary: Term

    def __add__(self, other: Number) -> Number:  # type: ignore[override]
        return Number(self.real + other.real, self.imaginary + other.imaginary)

    def __sub__(self, other: Number) -> Number:
        return Number(self.real - other.real, self.imaginary - other.imaginary)

    def times(self, cosine: PrimExpr | float, sine: PrimExpr | float) -> Number:
        """The product with ``cosine - i sine``."""
        return Number(self.real.times(cosine) + self.imaginary.times(sine),
                      self.imaginary.times(cosine) - self.real.times(sine))

    def quarter(self) -> Number:
        """The product with ``-i``."""
        return Number(self.imaginary, -self.real)

    def conjugate(self) -> Number:
        return Number(self.real, -self.imaginary)

    def scaled(self, factor: PrimExpr | float) -> Number:
        return Number(self.real.times(factor), self.imaginary.times(factor))


Keep = Callable[[Number], Number]  # puts a number into registers


def transform(x: Sequence[Number], keep: Keep) -> list[Number]:
    """The Fourier transform of ``x``, which are in registers."""
    size = len(x)
    first = split(size)
    if first == size:
        return _transform_whole(x, keep)
    second = size // first
    columns = [transform(x[j::second], keep) for j in range(second)]
    found: list[Number] = [x[0]] * size
    for k in range(first):
        row = [keep(_rotated(columns[j][k], j * k, size)) for j in range(second)]
        found[k::first] = transform(row, keep)
    return found


@lru_cache(maxsize=256)
def split(size: int) -> int:
    """The first factor of a transform; ``size`` itself for one that does not split further."""
    if size in (1, 2, 4):
        return size
    prime = next(p for p in range(2, size + 1) if size % p == 0)
    return 4 if size % 4 == 0 else prime


def operations(size: int) -> int:
    """The number of vector instructions of a transform, of which products count with their sum."""
    first = split(size)
    if size == 1:
        return 0
    if first != size:
        second = size // first
        return (second * operations(first) + first * operations(second)
                + 4 * (first - 1) * (second - 1))
    if size in (2, 4):
        return 4 if size == 2 else 16
    half = size // 2
    return 4 * half * half + 10 * half


def _rotated(x: Number, at: int, size: int) -> Number:
    """The product with ``exp(-2 pi i at / size)``."""
    turn = Fraction(at, size) % 1
    if turn.denominator in (1, 2, 4):
        for _ in range(int(turn * 4)):
            x = x.quarter()
        return x
    angle = 2 * math.pi * turn.numerator / turn.denominator
    return x.times(math.cos(angle), math.sin(angle))


def _transform_whole(x: Sequence[Number], keep: Keep) -> list[Number]:
    size = len(x)
    if size == 1:
        return list(x)
    if size == 2:
        return [x[0] + x[1], x[0] - x[1]]
    if size == 4:
        even, odd = keep(x[0] + x[2]), keep(x[1] + x[3])
        first, second = keep(x[0] - x[2]), keep((x[1] - x[3]).quarter())
        return [even + odd, first + second, even - odd, first - second]
    return _transform_prime(x, keep)


def _transform_prime(x: Sequence[Number], keep: Keep) -> list[Number]:
    size, half = len(x), len(x) // 2
    sums = [keep(x[j] + x[size - j]) for j in range(1, half + 1)]
    differences = [keep(x[j] - x[size - j]) for j in range(1, half + 1)]
    found = list(x)
    for one in sums:
        found[0] = found[0] + one
    for k in range(1, half + 1):
        angles = [2 * math.pi * (j * k % size) / size for j in range(1, half + 1)]
        even, odd = x[0], None
        for angle, one, other in zip(angles, sums, differences, strict=True):
            even = even + one.scaled(math.cos(angle))
            part = other.scaled(math.sin(angle))
            odd = part if odd is None else odd + part
        assert odd is not None
        even, odd = keep(even), keep(odd).quarter()
        found[k], found[size - k] = even + odd, even - odd
    return found
