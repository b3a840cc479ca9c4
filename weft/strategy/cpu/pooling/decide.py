"""The decision for a pooling: whole windows, or columns that neighbouring windows share."""

from __future__ import annotations

import enum

from weft.ir.expr import Call
from weft.ir.traits import Family
from weft.op.nn.pool import PoolAttrs
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.applies import why_not_separable
from weft.strategy.cpu.pooling.cost import PoolShape, pool_shape, separable_cycles, window_cycles
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget

# Whole windows must be estimated this much shorter: the estimates are no more accurate.
MAX_WINDOW_SHARE = 0.9


class PoolAlgorithm(enum.StrEnum):
    """How the windows of a pooling are reduced."""

    COLUMNS = "columns"  # separable: along all axes but W, then along W
    WINDOW = "window"  # all taps of one window in registers


@decides(Family.MAX_POOL, target="cpu")
@decides(Family.AVG_POOL, target="cpu")
def decide_pooling(call: Call, target: CpuTarget) -> Decision[PoolShape]:
    """The algorithm that runs a call of ``nn.max_pool*d`` or ``nn.avg_pool*d``."""
    shape, seconds = pool_shape(call), machine_model(target).seconds
    window = Candidate(PoolAlgorithm.WINDOW, seconds(window_cycles(shape, target)), shape)
    objection = why_not_separable(attrs_of(call, PoolAttrs))
    if objection is not None:
        return Decision(window, (Rejected(PoolAlgorithm.COLUMNS, objection),))
    columns = Candidate(PoolAlgorithm.COLUMNS, seconds(separable_cycles(shape, target)), shape)
    if MAX_WINDOW_SHARE * columns.seconds <= window.seconds < columns.seconds:
        reason = f"must be estimated below {MAX_WINDOW_SHARE:.0%} of separate columns"
        return Decision(columns, (Rejected(window.algorithm, reason, window.seconds),))
    return choose((columns, window))
