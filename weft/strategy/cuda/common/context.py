"""What a schedule for GPUs gets to see."""

from __future__ import annotations

from typing import TypeAlias

from weft.strategy.implementation import ScheduleContext
from weft.target import CudaTarget

CudaContext: TypeAlias = ScheduleContext[CudaTarget]
