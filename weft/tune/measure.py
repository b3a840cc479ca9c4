"""Times the implementations of a kernel against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.ir.expr import Function
from weft.strategy.implementation import Implementation
from weft.strategy.records import Record
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, LoweringError, ScheduleError
from weft.target import Target
from weft.tir.transform.registered import TirInsertion
from weft.tune.running_kernel import RunningKernel

ROUNDS = 5
# A candidate whose first calls take this many times as long as the best is not timed further.
PRUNING_FACTOR = 3.0
# Of the largest result: implementations add in different orders, some in narrow floats.
_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel with several ``candidates``, in the order in which the cost model prefers them."""

    kernel: str
    text: str
    function: Function
    candidates: tuple[Implementation, ...]


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The result of timing a kernel: seconds by implementation, the model's choice first."""

    text: str
    chosen_by_model: str
    seconds: Mapping[str, float]

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])

    @property
    def gain(self) -> float:
        """The speedup of the fastest over the model's choice, at least 1."""
        return self.seconds[self.chosen_by_model] / self.seconds[self.fastest]


def measure_kernel(task: KernelTask, target: Target, threads: int, seconds: float,
                   known: Mapping[str, float], tir_passes: Sequence[TirInsertion] = ()
                   ) -> tuple[TunedKernel, list[Record]]:
    """Time the candidates without a ``known`` time, each for about ``seconds``.

    ``tir_passes`` are those of the user.

    Returns the outcome and the new records. Candidates that cannot be scheduled for this kernel are
    left out; raises ``InternalError`` if the results of two of them differ.
    """
    running = _build(task, target, threads, known, tir_passes)
    times = _time_interleaved(running, seconds)
    records = [Record(task.kernel, task.text, str(target), name, took, threads)
               for name, took in times.items()]
    known_now = {**known, **times}
    ordered = {c.name: known_now[c.name] for c in task.candidates if c.name in known_now}
    return TunedKernel(task.text, next(iter(ordered)), ordered), records


def _build(task: KernelTask, target: Target, threads: int,
           known: Mapping[str, float], tir_passes: Sequence[TirInsertion]
           ) -> dict[str, RunningKernel]:
    running: dict[str, RunningKernel] = {}
    for candidate in task.candidates:
        if candidate.name in known:
            continue
        try:
            running[candidate.name] = RunningKernel(task.function, candidate, target, threads,
                                                    tir_passes)
        except (ScheduleError, LoweringError):
            continue  # the tile does not fit the registers beside the fused operators
    return running


def _time_interleaved(running: Mapping[str, RunningKernel], seconds: float) -> dict[str, float]:
    """The best average of several rounds; rounds alternate, so that noise hits all candidates."""
    first = {name: _first_call(kernel) for name, kernel in running.items()}
    _check_agreement(running)
    limit = PRUNING_FACTOR * min(first.values(), default=0.0)
    times = dict(first)
    share = seconds / ROUNDS
    for _ in range(ROUNDS):
        for name, kernel in running.items():
            if first[name] <= limit:
                calls = max(1, int(share / max(times[name], 1e-7)))
                times[name] = min(times[name], kernel.seconds(calls))
    return times


def _first_call(kernel: RunningKernel) -> float:
    """The faster of two calls: the first also pays for page faults and cold caches."""
    return min(kernel.seconds(), kernel.seconds())


def _check_agreement(running: Mapping[str, RunningKernel]) -> None:
    names = list(running)
    for name in names[1:]:
        if not _agree(running[names[0]].outputs, running[name].outputs):
            raise InternalError("two implementations of a kernel give different results",
                                got=f"{names[0]} and {name}")


def _agree(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    for a, b in zip(ours, theirs, strict=True):
        x, y = (array.astype(np.float64) for array in (a, b))
        scale = float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) or 1.0
        if not np.allclose(x / scale, y / scale, atol=_TOLERANCE, rtol=0, equal_nan=True):
            return False
    return True
