"""Which of a kernel's implementations is fastest, by timing them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.ir.expr import Function
from weft.strategy.implementation import Implementation
from weft.strategy.records import Record
from weft.support.errors import InternalError, LoweringError, ScheduleError
from weft.target import CpuTarget
from weft.tune.running_kernel import RunningKernel

ROUNDS = 5
# What takes this many times as long as the best in its first calls is not timed further.
HOPELESS = 3.0
_TOLERANCE = 1e-2  # of the largest result: other orders of addition, and narrow floats


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel with a choice: ``candidates`` in the order in which models prefer them."""

    kernel: str
    text: str
    function: Function
    candidates: tuple[Implementation, ...]


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """What timing a kernel has shown; seconds by implementation, the model's choice first."""

    text: str
    chosen_by_model: str
    seconds: Mapping[str, float]

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])

    @property
    def gain(self) -> float:
        """By how many times the fastest is faster than what the model chooses."""
        return self.seconds[self.chosen_by_model] / self.seconds[self.fastest]


def measure_kernel(task: KernelTask, target: CpuTarget, threads: int, seconds: float,
                   known: Mapping[str, float]) -> tuple[TunedKernel, list[Record]]:
    """Time the candidates that are not ``known`` yet, each for about ``seconds``.

    Returns the outcome and the new records. Candidates that cannot be scheduled for this kernel
    are left out; raises ``InternalError`` where two of them compute different things.
    """
    running = _build(task, target, threads, known)
    times = _time_in_turn(running, seconds)
    records = [Record(task.kernel, task.text, str(target), name, took, threads)
               for name, took in times.items()]
    known_now = {**known, **times}
    ordered = {c.name: known_now[c.name] for c in task.candidates if c.name in known_now}
    return TunedKernel(task.text, next(iter(ordered)), ordered), records


def _build(task: KernelTask, target: CpuTarget, threads: int,
           known: Mapping[str, float]) -> dict[str, RunningKernel]:
    running: dict[str, RunningKernel] = {}
    for candidate in task.candidates:
        if candidate.name in known:
            continue
        try:
            running[candidate.name] = RunningKernel(task.function, candidate, target, threads)
        except (ScheduleError, LoweringError):
            continue  # a tile that this kernel's other operators leave no room for
    return running


def _time_in_turn(running: Mapping[str, RunningKernel], seconds: float) -> dict[str, float]:
    """The best average of several rounds; rounds go in turn, so that a noisy moment hits all."""
    first = {name: _first_call(kernel) for name, kernel in running.items()}
    _check_agreement(running)
    limit = HOPELESS * min(first.values(), default=0.0)
    times = dict(first)
    share = seconds / ROUNDS
    for _ in range(ROUNDS):
        for name, kernel in running.items():
            if first[name] <= limit:
                calls = max(1, int(share / max(times[name], 1e-7)))
                times[name] = min(times[name], kernel.seconds(calls))
    return times


def _first_call(kernel: RunningKernel) -> float:
    """The better of two calls; the first one also pays for pages and caches."""
    return min(kernel.seconds(), kernel.seconds())


def _check_agreement(running: Mapping[str, RunningKernel]) -> None:
    names = list(running)
    for name in names[1:]:
        if not _agree(running[names[0]].outputs, running[name].outputs):
            raise InternalError("two implementations of a kernel compute different things",
                                got=f"{names[0]} and {name}")


def _agree(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    for a, b in zip(ours, theirs, strict=True):
        x, y = (array.astype(np.float64) for array in (a, b))
        scale = float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) or 1.0
        if not np.allclose(x / scale, y / scale, atol=_TOLERANCE, rtol=0, equal_nan=True):
            return False
    return True
