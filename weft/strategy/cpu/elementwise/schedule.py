"""How many vectors of an elementwise chain are computed at a time.

A polynomial is a chain of dependent operations: a processor that sees one vector after the other
waits for results. Several independent vectors fill the gaps. Cheap bodies wait for memory instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.ir.dtype import DType, float32
from weft.strategy.cpu.machine_model import has_masks
from weft.target import CpuTarget
from weft.tir.expr import Call, PrimExpr
from weft.tir.intrinsics import INTRINSICS
from weft.tir.visitor import post_order

_VECTORS = 4
# Of more polynomials the code would be long, and they overlap among themselves.
_MOST_POLYNOMIALS = 4
# One of so many steps may be partly in vain.
_MANY_STEPS = 16
# In fewer registers one vector and the constants of a polynomial fill them all.
_ENOUGH_REGISTERS = 32


def polynomials(body: Sequence[PrimExpr]) -> int:
    """How many functions the body calls that are computed by polynomials."""
    calls = {e for root in body for e in post_order(root)
             if isinstance(e, Call) and INTRINSICS.get(e.name).is_decomposed}
    return len(calls)


def vectors_at_a_time(count: int, extent: int, dtype: DType, target: CpuTarget) -> int:
    """Vectors of ``dtype`` for a body of ``count`` polynomials over ``extent`` elements.

    They divide the extent, or take many steps with one at the end that masks switch partly off:
    vectors of each smaller width would repeat the body. Narrow types are computed as float32, in
    more vectors than hold their elements.
    """
    if not 0 < count <= _MOST_POLYNOMIALS or target.vector_registers < _ENOUGH_REGISTERS:
        return 1
    lanes = target.lanes(dtype)
    vectors = _VECTORS * min(target.lanes(float32), lanes) // lanes
    fewest = _MANY_STEPS if has_masks(target) else math.inf
    while vectors > 1 and extent % (vectors * lanes) and extent < fewest * vectors * lanes:
        vectors //= 2
    return max(vectors, 1)
