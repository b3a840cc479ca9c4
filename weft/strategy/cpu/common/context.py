"""What a schedule for CPUs gets to see."""

from __future__ import annotations

from typing import TypeAlias

from weft.strategy.implementation import ScheduleContext
from weft.target import CpuTarget

CpuContext: TypeAlias = ScheduleContext[CpuTarget]
