"""The decision for pooling: whole windows, or columns that neighbouring windows share."""

from __future__ import annotations

import enum
import math

from weft.ir import Call, Family
from weft.op.nn.pool import PoolAttrs
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.cost import PoolShape, pool_shape, separable_cycles, window_cycles
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.topi.nn.pool import axis_windows

UNROLLED_TAPS = 16  # windows of at most this many taps are unrolled


def why_not_separable(attrs: PoolAttrs) -> str | None:
    """Why the columns of windows are not worth an intermediate result; ``None`` if they are."""
    *others, last = axis_windows(attrs.window)
    rows = math.prod(a.taps for a in others)
    if rows < 2 or last.taps < 2:
        return "the window extends along one axis only"
    if Layout.parse(attrs.layout).index_of("W") == 0:
        return f"W is the outermost axis of layout {attrs.layout}"
    if last.taps > last.stride or rows * last.taps >= UNROLLED_TAPS or last.before > 0:
        return None
    return "small windows without padding that do not overlap along W"


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
