"""One way to run an operator on a target, and what its schedule gets to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft import te
from weft.ir.expr import Call
from weft.target import Target


@dataclass(frozen=True, slots=True)
class ScheduleContext:
    """A group of fused operators as tensor expressions, ready to be scheduled.

    ``anchor`` is the result of the operator that the implementation belongs to; ``outputs`` are
    what the kernel writes (the anchor itself where nothing follows it).
    """

    schedule: te.Schedule
    anchor: te.Tensor
    outputs: tuple[te.Tensor, ...]
    call: Call
    target: Target

    @property
    def output(self) -> te.Tensor:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Implementation:
    """``compute`` replaces the operator's own (same signature); ``cost`` is seconds, estimated.

    Implementations are yielded by a strategy only where they apply; the cheapest one is taken,
    the first of equals.
    """

    name: str
    schedule: Callable[[ScheduleContext], None]
    compute: Callable[..., Any] | None = None
    cost: float = 0.0
