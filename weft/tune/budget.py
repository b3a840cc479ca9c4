"""Shares a budget of seconds among kernels: the next round goes where it should gain the most.

What a round of a kernel gains is estimated from what its last rounds gained, and from how far it is
from the limit of the machine: that gap counts less with every round that found nothing. Both are
seconds of one call of the program, so a kernel that runs often counts as often.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.tune.search import KernelSearch

STALE_ROUNDS = 6  # after which a kernel is given up
NEAR_LIMIT = 1.03  # times the limit of the machine: nothing is left to gain
# The share of the gap to the limit that a round is hoped to close, after rounds without success.
HOPE, FADING = 0.15, 0.55
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(budget: float | str) -> float:
    """Seconds of a budget such as ``90``, ``"90s"``, ``"10m"`` or ``"1h"``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", str(budget))
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError("the budget cannot be used", expected="seconds, or a text as 90s or 10m",
                          got=repr(budget))
    return seconds


@dataclass(eq=False, slots=True)
class TunedTask:
    """A kernel under search: seconds of the model's choice, the limit, and what rounds gained."""

    search: KernelSearch
    limit: float
    baseline: float = 0.0  # seconds of one call by the model's choice
    spent: float = 0.0  # seconds of tuning
    gained: list[float] = field(default_factory=list)  # seconds of a call, by round

    @property
    def seconds(self) -> float:
        """Seconds of one call by the fastest point."""
        return self.baseline / self.search.gain

    @property
    def is_done(self) -> bool:
        """Whether more rounds would be wasted."""
        search = self.search
        near = bool(self.baseline) and self.seconds <= NEAR_LIMIT * self.limit
        return search.stale >= STALE_ROUNDS or near or search.is_exhausted

    @property
    def expected_gain(self) -> float:
        """Seconds of the program that the next round is expected to save."""
        if self.is_done:
            return 0.0
        now = self.seconds or self.search.reference.predicted
        gap = max(0.05 * now, now - self.limit)
        hoped = HOPE * gap * FADING ** self.search.stale
        recent = self.gained[-2:]
        return self.search.task.count * max(hoped, sum(recent) / len(recent) if recent else 0.0)

    def rate(self, usual: float) -> float:
        """The expected gain for each second of tuning; a round usually takes ``usual`` seconds."""
        rounds = self.search.rounds
        return self.expected_gain / (self.spent / rounds if rounds and self.spent else usual)


def next_task(tasks: Sequence[TunedTask]) -> TunedTask | None:
    """The kernel whose next round promises the most; ``None`` if all are done."""
    rounds = sum(task.search.rounds for task in tasks)
    usual = sum(task.spent for task in tasks) / rounds if rounds else 0.0
    best = max(tasks, key=lambda task: task.rate(usual or 1.0), default=None)
    return best if best is not None and best.expected_gain > 0 else None
