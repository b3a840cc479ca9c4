"""How operators run on the device; weft imports this module with the first kernel."""

from __future__ import annotations

from weft.strategy.implementation import ScheduleContext
from weft.strategy.registry import default_schedule

from .target import ToyTarget


@default_schedule(target="toy")
def loop_nests(ctx: ScheduleContext[ToyTarget]) -> None:
    """A loop nest for each tensor, which is what every schedule starts from."""
