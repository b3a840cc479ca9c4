"""The implementations of pooling: the decided algorithm, and whole windows to compare with."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.traits import Family
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.compute import avg_by_columns, max_by_columns
from weft.strategy.cpu.pooling.cost import window_cycles
from weft.strategy.cpu.pooling.decide import PoolAlgorithm, decide_pooling
from weft.strategy.cpu.pooling.schedule import schedule_columns, schedule_window
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


@strategy(Family.MAX_POOL, target="cpu", complete=True)
@strategy(Family.AVG_POOL, target="cpu", complete=True)
def pooling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The decided algorithm.

    Whole windows are a variant of separable windows: the decision rejects them even where their
    estimate is slightly shorter, and tuning times both.
    """
    decision, name = decide_pooling(call, target), str(call.op)
    is_max = isinstance(call.op, Op) and call.op.traits.family is Family.MAX_POOL
    windows = Implementation(
        f"{name}.cpu.{PoolAlgorithm.WINDOW}", schedule_window,
        seconds=machine_model(target).seconds(window_cycles(decision.plan, target)))
    if decision.algorithm != PoolAlgorithm.COLUMNS:
        yield windows
        return
    yield Implementation(f"{name}.cpu.{PoolAlgorithm.COLUMNS}", schedule_columns,
                         max_by_columns if is_max else avg_by_columns, decision.seconds,
                         variants=lambda: (windows,))
