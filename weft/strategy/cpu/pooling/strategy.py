"""The implementations of pooling: the decided algorithm, and whole windows to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from weft import te
from weft.ir import Call, Family, Op
from weft.op.nn.pool import PoolAttrs
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.pooling.cost import window_cycles
from weft.strategy.cpu.pooling.decide import PoolAlgorithm, decide_pooling
from weft.strategy.cpu.pooling.schedule import schedule_columns, schedule_window
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.strategy.space import Knob, Point, Space
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool


class AveragePoolAttrs(Protocol):
    """The attributes that ``nn.avg_pool1d``, ``nn.avg_pool2d`` and ``nn.avg_pool3d`` share."""

    @property
    def window(self) -> topi_pool.PoolWindow: ...

    @property
    def layout(self) -> str: ...

    @property
    def count_include_pad(self) -> bool: ...


def max_by_columns(x: te.Tensor, attrs: PoolAttrs) -> te.Tensor:
    """Maxima over windows, with the stage ``pool_columns`` in between."""
    return topi_pool.max_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True)


def avg_by_columns(x: te.Tensor, attrs: AveragePoolAttrs) -> te.Tensor:
    """Means over windows, with the stage ``pool_columns`` in between."""
    return topi_pool.avg_pool(x, attrs.window, Layout.parse(attrs.layout), by_columns=True,
                              count_include_pad=attrs.count_include_pad)


@strategy(Family.MAX_POOL, target="cpu", complete=True)
@strategy(Family.AVG_POOL, target="cpu", complete=True)
def pooling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The decided algorithm.

    Whole windows are a point in the space of separable windows: the decision rejects them even
    where their estimate is slightly shorter, and tuning times both.
    """
    decision, name = decide_pooling(call, target), str(call.op)
    is_max = isinstance(call.op, Op) and call.op.traits.family is Family.MAX_POOL
    windows = Implementation(
        f"{name}.cpu.{PoolAlgorithm.WINDOW}", schedule_window,
        seconds=machine_model(target).seconds(window_cycles(decision.plan, target)))
    if decision.algorithm != PoolAlgorithm.COLUMNS:
        yield windows
        return
    base = f"{name}.cpu.{PoolAlgorithm.COLUMNS}"
    columns = Implementation(base, schedule_columns, max_by_columns if is_max else avg_by_columns,
                             decision.seconds)

    def at(point: Point) -> Implementation:
        if point["algorithm"] == PoolAlgorithm.WINDOW.value:
            if point["rows"]:
                raise ScheduleError("whole windows have no blocks of rows", got=str(point["rows"]))
            return windows
        return replace(columns, schedule=partial(schedule_columns, rows=int(point["rows"])))

    knobs = (Knob.of("algorithm", (a.value for a in PoolAlgorithm), PoolAlgorithm.COLUMNS.value),
             Knob.of("rows", (0, 1, 2, 3, 4, 6, 8), 0))
    yield replace(columns, space=lambda: Space(base, knobs, at))
