"""The implementations of pooling: the decided algorithm, and whole windows to compare with."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.compute import avg_by_columns, max_by_columns
from weft.strategy.cpu.pooling.cost import window_cycles
from weft.strategy.cpu.pooling.decide import (
    AVG_POOL_OPS,
    MAX_POOL_OPS,
    PoolAlgorithm,
    decide_pooling,
)
from weft.strategy.cpu.pooling.schedule import schedule_columns, schedule_window
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget

# The separable computes, by operator.
_BY_COLUMNS = {**dict.fromkeys(MAX_POOL_OPS, max_by_columns),
               **dict.fromkeys(AVG_POOL_OPS, avg_by_columns)}


def pooling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The decided algorithm.

    Whole windows are a variant of separable windows: the decision rejects them even where their
    estimate is slightly shorter, and tuning times both.
    """
    decision, name = decide_pooling(call, target), str(call.op)
    windows = Implementation(
        f"{name}.cpu.{PoolAlgorithm.WINDOW}", schedule_window,
        seconds=machine_model(target).seconds(window_cycles(decision.plan, target)))
    if decision.algorithm != PoolAlgorithm.COLUMNS:
        yield windows
        return
    yield Implementation(f"{name}.cpu.{PoolAlgorithm.COLUMNS}", schedule_columns,
                         _BY_COLUMNS[name], decision.seconds, variants=lambda: (windows,))


for _name in _BY_COLUMNS:
    strategy(_name, target="cpu", complete=True)(pooling)
