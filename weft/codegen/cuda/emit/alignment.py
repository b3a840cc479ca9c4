"""The alignment of accesses: a vector of a thread is one instruction only if it is aligned."""

from __future__ import annotations

import math

from weft.tir.buffer import Buffer
from weft.tir.expr import Add, Cast, IntImm, Mul, PrimExpr, Ramp, Sub

VECTOR_BYTES = 16  # of the widest load or store of a thread
# The launcher passes tensors that start at multiples of this.
TENSOR_ALIGNMENT = 16
_UNKNOWN = 1


def access_alignment(buffer: Buffer, index: PrimExpr, _: int) -> int:
    """The alignment in bytes of an access to elements from ``index`` on."""
    if isinstance(index, Ramp):
        index = index.base
    start = min(buffer.alignment, VECTOR_BYTES)
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
