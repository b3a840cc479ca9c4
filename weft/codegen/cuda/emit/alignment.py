"""The alignment of accesses: a vector of a thread is one instruction only if it is aligned."""

from __future__ import annotations

import math

from weft.tir import Add, Buffer, Cast, IntImm, Mul, PrimExpr, Ramp, Sub

# The widest load or store of a thread. The launcher passes tensors that start at multiples of it.
VECTOR_BYTES = 16
_UNKNOWN = 1


def access_alignment(buffer: Buffer, index: PrimExpr, lanes: int) -> int:
    """The alignment in bytes of an access to ``lanes`` elements from ``index`` on.

    At most the size of the access, so that LLVM makes no access wider than the program asks for.
    """
    if isinstance(index, Ramp):
        index = index.base
    size = lanes * buffer.dtype.itemsize
    start = min(buffer.alignment, VECTOR_BYTES, 1 << (size - 1).bit_length())
    return math.gcd(divisor_of(index) * buffer.dtype.itemsize, start) or start


def divisor_of(e: PrimExpr) -> int:
    """An integer that divides ``e``; 0 if ``e`` is 0."""
    match e:
        case IntImm():
            return abs(e.value)
        case Mul():
            return divisor_of(e.a) * divisor_of(e.b)
        case Add() | Sub():
            return math.gcd(divisor_of(e.a), divisor_of(e.b))
        case Cast():
            return divisor_of(e.value)
    return _UNKNOWN
