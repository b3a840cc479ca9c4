"""Interleaved loads: gathers whose lanes alternate between a few contiguous runs.

Packing interleaves groups of rows: consecutive lanes come from different rows. Each row is loaded
as a contiguous vector, and shuffles interleave the vectors: first pairs, then pairs of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.dtype import int64
from weft.tir import expr as x
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, Shuffle, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.visitor import post_order, substitute, with_children

_RUNS = (2, 4)  # supported numbers of runs


def of_lane(e: PrimExpr, lane: Var) -> PrimExpr | None:
    """Lane ``lane`` of a vector index, a scalar; ``None`` unless it is arithmetic on ramps."""
    if e.dtype.lanes == 1:
        return e
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    if isinstance(e, Broadcast):
        return e.value
    if not isinstance(e, x.Binary) or e.dtype.element is not int64:
        return None
    a, b = of_lane(e.a, lane), of_lane(e.b, lane)
    return None if a is None or b is None else with_children(e, (a, b))


def interleaved_starts(index: PrimExpr, analyzer: Analyzer) -> list[PrimExpr] | None:
    """The start of each run, if lane ``q * runs + r`` of ``index`` is element ``q`` of run ``r``.

    ``None`` for other indices. Tries 2 and 4 runs.
    """
    lanes = index.dtype.lanes
    lane, step = Var("lane", int64), Var("step", int64)
    position = of_lane(index, lane)
    if position is None or any(type(e) is BufferLoad for e in post_order(position)):
        return None
    for runs in _RUNS:
        if lanes % runs or lanes == runs:
            continue
        analyzer.bind(step, 0, lanes // runs)
        starts = [_start(substitute(position, {lane: step * runs + r}), step, analyzer)
                  for r in range(runs)]
        analyzer.release(step)
        found = [s for s in starts if s is not None]
        if len(found) == runs:
            return found
    return None


def _start(position: PrimExpr, step: Var, analyzer: Analyzer) -> PrimExpr | None:
    """``position`` at step 0 if it advances by one element per step; else ``None``."""
    here = analyzer.simplify(position)
    start = analyzer.simplify(substitute(here, {step: const(0)}))
    return start if int_value(analyzer.simplify(here - start - step)) == 0 else None


def interleave(vectors: Sequence[PrimExpr]) -> PrimExpr:
    """Lane 0 of each vector, then lane 1 of each, and so on; 2**k vectors of equal width."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [_pair(vectors[i], vectors[i + half]) for i in range(half)]
    return vectors[0]


def _pair(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    lanes = a.dtype.lanes
    return Shuffle((a, b), tuple(i // 2 + (i % 2) * lanes for i in range(2 * lanes)))
