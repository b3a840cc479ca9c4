"""Times a point beside the cost model's choice, on a machine that may be busy.

Both run in turn, in slices shorter than a time slice of the scheduler; noise only adds time, so the
fastest slices count. Rounds go on until the fastest slices of both agree, or the time is up. A
point counts only if it computes what the cost model's choice does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from weft.support.dataclass import dataclass

SLICE = 1e-3  # seconds of consecutive calls
LEAST_ROUNDS, MOST_ROUNDS = 4, 60
# The fastest slices are noise-free if so many agree within this share.
AGREEING, SPREAD = 3, 0.015
# From this ratio on a point is so slow that it is not timed further.
PRUNING_FACTOR = 1.5
# Of the largest result: implementations add in different orders, some in narrow floats.
_TOLERANCE = 1e-2


class Running(Protocol):
    """A kernel that can be called."""

    @property
    def outputs(self) -> Sequence[np.ndarray]: ...

    def seconds(self, calls: int = 1) -> float:
        """The average seconds per call over ``calls`` consecutive calls."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of a point and, at the same time, of the cost model's choice.

    ``spread`` is how far the fastest slices of both differ, as a share.
    """

    seconds: float
    baseline: float
    rounds: int
    spread: float

    @property
    def gain(self) -> float:
        """How many times as fast as the cost model's choice."""
        return self.baseline / self.seconds


def measure(baseline: Running, point: Running, seconds: float) -> Measurement:
    """Time both for up to ``seconds``."""
    end = time.perf_counter() + seconds
    first = [min(one.seconds(), one.seconds()) for one in (baseline, point)]
    calls = [max(1, int(SLICE / max(one, 1e-7))) for one in first]
    times: tuple[list[float], list[float]] = ([], [])
    rounds = 0
    while rounds < MOST_ROUNDS:
        # The second of a pair finds the caches and the clock that the first one leaves.
        for at in ((0, 1), (1, 0))[rounds % 2]:
            times[at].append((baseline, point)[at].seconds(calls[at]))
        rounds += 1
        if rounds >= LEAST_ROUNDS:
            ratio = min(times[1]) / min(times[0])
            if ratio > PRUNING_FACTOR or max(map(spread_of, times)) < SPREAD:
                break
        if rounds >= 2 and time.perf_counter() > end:
            break
    return Measurement(min(times[1]), min(times[0]), rounds, max(map(spread_of, times)))


def spread_of(times: Sequence[float]) -> float:
    """How far the fastest slices differ; infinite for too few of them."""
    fastest = sorted(times)[:AGREEING]
    return float("inf") if len(fastest) < AGREEING else fastest[-1] / fastest[0] - 1


def agree(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Whether two results are equal up to the order of additions."""
    for a, b in zip(ours, theirs, strict=True):
        x, y = (array.astype(np.float64) for array in (a, b))
        scale = float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) or 1.0
        if not np.allclose(x / scale, y / scale, atol=_TOLERANCE, rtol=0, equal_nan=True):
            return False
    return True
