"""The implementations of operators whose indices come from lookup tables."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.traits import Family
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.resampling.schedule import schedule_resampling
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget


@strategy(Family.RESAMPLING, target="cpu", complete=True)
def resampling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Lookup tables first, then one materialized stage per axis."""
    yield Implementation(f"{call.op}.cpu.resampling", schedule_resampling,
                         seconds=roofline_seconds(call, target))
