"""A session of tuning: rounds of search within a budget, whose results are kept as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field

from weft.strategy.records import cpu_of
from weft.support.dataclass import dataclass
from weft.support.errors import WeftError
from weft.tune.budget import STALE_ROUNDS, TunedTask, next_task
from weft.tune.cost_model import LearnedModel
from weft.tune.measure import Measurement
from weft.tune.measuring_process import MeasuringProcess
from weft.tune.search import Candidate, KernelSearch
from weft.tune.store import Sample, TuningStore, Winner
from weft.tune.task import KernelTask, limit_of

POINT_SECONDS = 0.1  # to time a point
CONFIRM_SECONDS = 0.3  # to time one again that seems the fastest
# A winner is at least this many times as fast as the model's choice, in two measurements.
MARGIN = 1.03


@dataclass(eq=False, slots=True)
class Session:
    """The kernels under search, with the records that they came from and go to."""

    store: TuningStore
    measuring: MeasuringProcess
    threads: int
    seed: int = 0
    tasks: list[TunedTask] = field(default_factory=list)
    model: LearnedModel = field(default_factory=LearnedModel)
    watch: Callable[[Sequence[TunedTask]], None] | None = None
    point_seconds: float = POINT_SECONDS

    def open(self, tasks: Sequence[KernelTask], *, again: bool = False) -> None:
        """Begin the search for kernels, from what is known of them unless ``again``."""
        self.model.add_samples(self.store.samples())
        for task in tasks:
            try:
                search = KernelSearch(task, self.model, self.seed)
                limit = limit_of(task) / self.threads
            except WeftError:  # a kernel whose loops the strategy itself cannot make is reported
                continue       # where it is compiled
            tuned = TunedTask(search, limit)
            if not again:
                self._recall(tuned)
            self.tasks.append(tuned)

    def run(self, seconds: float) -> None:
        """Search until the budget is spent, or nothing is left to gain."""
        end = time.monotonic() + seconds
        self._tell()
        while time.monotonic() < end:
            task = next_task(self.tasks)
            if task is None:
                return
            started = time.monotonic()
            try:
                self.round(task, end)
            finally:
                task.spent += time.monotonic() - started
            self._tell()

    def round(self, task: TunedTask, end: float) -> None:
        """One round of a kernel; stops at the time ``end``."""
        search = task.search
        if not task.baseline and not self._measure_baseline(task):
            search.stale = STALE_ROUNDS  # what cannot be measured cannot be tuned
            return
        before = search.gain
        for candidate in search.propose():
            if time.monotonic() > end:
                return
            self._try(task, candidate)
        search.end_round(before)
        task.gained.append(task.baseline / before - task.seconds)

    def _measure_baseline(self, task: TunedTask) -> bool:
        name = task.search.task.default.name
        found = self._measure(task, name, self.point_seconds)
        if isinstance(found, str):
            return False
        task.baseline = found.baseline
        self._keep(task, name, found, task.search.reference.features)
        return True

    def _try(self, task: TunedTask, candidate: Candidate) -> None:
        """Measure a point; one that seems the fastest is measured again, and becomes the winner."""
        search, best = task.search, task.search.gain
        found = self._measure(task, candidate.name, self.point_seconds)
        if isinstance(found, Measurement) and found.gain > best:
            again = self._measure(task, candidate.name, CONFIRM_SECONDS * self.point_seconds
                                  / POINT_SECONDS)
            found = again if isinstance(again, str) else min(found, again, key=lambda m: m.gain)
        search.report(candidate, found)
        self._keep(task, candidate.name, found, candidate.example.features)
        if isinstance(found, Measurement):
            # The least that was seen: noise only adds time.
            task.baseline = min(task.baseline, found.baseline)
            if found.gain > best and found.gain >= MARGIN:
                kernel = search.task
                self.store.set_winner(Winner(
                    cpu_of(kernel.target), kernel.kernel, candidate.name, kernel.text,
                    found.seconds, found.baseline, self.threads))

    def _measure(self, task: TunedTask, name: str, seconds: float) -> Measurement | str:
        return self.measuring.measure(task.search.task, name, self.threads, seconds)

    def _keep(self, task: TunedTask, name: str, found: Measurement | str,
              features: Sequence[float]) -> None:
        kernel = task.search.task
        times = (found.seconds, found.baseline, "ok") if isinstance(found, Measurement) else (
            None, None, found)
        self.store.add([Sample(cpu_of(kernel.target), kernel.kernel, self.threads, name,
                               kernel.text, *times, features)])

    def _recall(self, tuned: TunedTask) -> None:
        kernel = tuned.search.task
        for sample in self.store.samples(kernel.kernel, cpu_of(kernel.target)):
            if sample.threads != self.threads:
                continue
            gain = None
            if sample.seconds and sample.baseline:
                gain = sample.baseline / sample.seconds
                if sample.implementation == kernel.default.name:
                    tuned.baseline = sample.baseline
            tuned.search.recall(sample.implementation, gain, sample.status)

    def _tell(self) -> None:
        if self.watch is not None:
            self.watch(self.tasks)
