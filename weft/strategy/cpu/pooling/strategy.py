"""The implementations of pooling: the decided algorithm, and whole windows to compare with."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.compute import avg_by_columns, max_by_columns
from weft.strategy.cpu.pooling.cost import window_cycles
from weft.strategy.cpu.pooling.decide import POOL_OPS, PoolAlgorithm, decide_pooling
from weft.strategy.cpu.pooling.schedule import schedule_columns, schedule_window
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


def pooling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Whole windows, and separable windows if the decision is for them."""
    decision, name = decide_pooling(call, target), str(call.op)
    window = machine_model(target).seconds(window_cycles(decision.plan, target))
    if decision.algorithm == PoolAlgorithm.COLUMNS:
        compute = max_by_columns if name.startswith("nn.max_pool") else avg_by_columns
        yield Implementation(f"{name}.cpu.{PoolAlgorithm.COLUMNS}", schedule_columns, compute,
                             decision.seconds)
        window = max(window, decision.seconds)  # the decision weighs more than the estimate
    yield Implementation(f"{name}.cpu.{PoolAlgorithm.WINDOW}", schedule_window, seconds=window)


for _name in POOL_OPS:
    strategy(_name, target="cpu", complete=True)(pooling)
