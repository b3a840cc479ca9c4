"""How many vectors an iteration of an elementwise loop computes.

A polynomial is a chain of dependent operations, so one vector at a time is bound by latency.
Several independent vectors hide it. Bodies without polynomials are bound by memory instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.ir import DType, float32
from weft.strategy.cpu.machine_model import has_masks
from weft.strategy.extents import is_multiple, size_of
from weft.target import CpuTarget
from weft.tir import Call, PrimExpr, post_order
from weft.tir.intrinsics import INTRINSICS

_VECTORS = 4
# More polynomials overlap with each other already, and the code would grow.
_MAX_POLYNOMIALS = 4
# From so many iterations on, one masked iteration at the end may be partly unused.
_MIN_MASKED_ITERATIONS = 16
# With fewer registers, one vector and the constants of a polynomial occupy all of them.
_MIN_REGISTERS = 32


def polynomials(body: Sequence[PrimExpr]) -> int:
    """The number of distinct calls in the body that lower to polynomials."""
    calls = {e for root in body for e in post_order(root)
             if isinstance(e, Call) and INTRINSICS.get(e.name).is_decomposed}
    return len(calls)


def vectors_per_iteration(
    count: int, extent: PrimExpr, dtype: DType, target: CpuTarget
) -> int:
    """Vectors of ``dtype`` for a body of ``count`` polynomials over ``extent`` elements.

    The count divides the extent, or the loop is long and its last iteration is masked; otherwise
    the tail would need copies of the body for narrower vectors. Narrow dtypes are computed as
    float32, in more vectors than their elements occupy in memory.
    """
    if not 0 < count <= _MAX_POLYNOMIALS or target.vector_registers < _MIN_REGISTERS:
        return 1
    lanes = target.lanes(dtype)
    vectors = _VECTORS * min(target.lanes(float32), lanes) // lanes
    fewest = _MIN_MASKED_ITERATIONS if has_masks(target) else math.inf
    size = size_of(extent)
    while (vectors > 1 and not is_multiple(extent, vectors * lanes)
           and size < fewest * vectors * lanes):
        vectors //= 2
    return max(vectors, 1)
