"""Makes each call of a kernel of symbolic sizes decide whether its loops run on several threads.

For fixed sizes the schedule decides whether a loop has enough work for a fork and join. For
symbolic sizes it makes the loop parallel if any size has enough work, and each call compares its
work with the threshold of the cost model (``CostModel.parallel_from``).
"""

from __future__ import annotations

import functools

from weft import te
from weft.te.state import INLINE, StageState
from weft.te.tensor import ExternOp
from weft.tir import GE, Analyzer, PrimExpr, PrimFunc, const, int_value, vars_of
from weft.tir.parallel_condition import parallel_if
from weft.tir.size_text import bind_size


def parallel_from(func: PrimFunc, schedule: te.Schedule, threshold: int) -> PrimFunc:
    """``func``, whose parallel loops have an effect from ``threshold`` scalar operations on.

    Unchanged if the sizes are fixed, all sizes have that much work, or the work is not known.
    """
    work = _work(schedule)
    if work is None:
        return func
    analyzer = Analyzer()
    for var in vars_of(work):
        bind_size(analyzer, var)
    enough = GE(analyzer.simplify(work), const(threshold))
    return func if analyzer.can_prove(enough) else parallel_if(func, enough)


def _work(schedule: te.Schedule) -> PrimExpr | None:
    """Iterations of all loop nests; ``None`` for fixed sizes, or if those of a body are unknown."""
    total: PrimExpr = const(0)
    for stage in schedule.stages:
        part = _work_of(stage)
        if part is None:
            return None
        total = total + part
    return None if int_value(total) is not None else total


def _work_of(stage: StageState) -> PrimExpr | None:
    op = stage.op
    if isinstance(op, te.ComputeOp) and stage.attach != INLINE:
        extents = (axis.extent for axis in (*op.axis, *op.reduce_axis))
        return functools.reduce(lambda total, extent: total * extent, extents, const(1))
    if isinstance(op, ExternOp):
        return const(op.flops // 2) if op.flops else None
    return const(0)
