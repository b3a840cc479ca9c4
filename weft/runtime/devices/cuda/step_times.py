"""Times the steps of a call on a device: by events on the stream, and by the clock on the host."""

from __future__ import annotations

import time
from collections.abc import Sequence

from weft.runtime.calls import KernelCall
from weft.runtime.device import HOST
from weft.runtime.devices.cuda.actions import Action
from weft.runtime.devices.cuda.frame import DeviceFrame
from weft.runtime.profile import StepTime

_LEAST_SECONDS = 1e-9


class StepTimer:
    """Runs actions one by one and collects their times.

    A launch is timed by two events around it, so the host's work is not a part of its time. For
    steps on the host and for copies to it, the device is idle when the clock starts.
    """

    def __init__(self, frame: DeviceFrame) -> None:
        self._frame = frame
        self._context = frame.program.context
        self._origin = time.perf_counter()
        self._timed: list[tuple[KernelCall, float, int, int]] = []
        self._events: list[int] = []

    def run(self, step: KernelCall, action: Action) -> None:
        """Run the action of a step."""
        if step.device == HOST:
            self._run_on_host(step, action)
            return
        driver, stream = self._context.driver, self._context.compute
        first, last = driver.create_event(timed=True), driver.create_event(timed=True)
        self._events += [first, last]
        start = time.perf_counter()
        driver.record(first, stream)
        action(self._frame)
        driver.record(last, stream)
        self._timed.append((step, start, first, last))

    def _run_on_host(self, step: KernelCall, action: Action) -> None:
        self._frame.program.library.synchronize()
        start = time.perf_counter()
        action(self._frame)
        self._timed.append((step, start, 0, -round((time.perf_counter() - start) * 1e9)))

    def times(self) -> list[StepTime]:
        """The times of all steps, once the device has done them; starts are those of the host."""
        self._frame.program.library.synchronize()
        driver = self._context.driver
        made = []
        for step, start, first, last in self._timed:
            seconds = -last * 1e-9 if last <= 0 else driver.seconds_between(first, last)
            made.append(StepTime(step, start, max(seconds, _LEAST_SECONDS)))
        for event in self._events:
            driver.destroy_event(event)
        self._events.clear()
        return made


def best_of(runs: Sequence[Sequence[StepTime]]) -> tuple[StepTime, ...]:
    """The best time of each step over runs, which made the same calls; one after the other."""
    made, now = [], 0.0
    for times in zip(*runs, strict=True):
        best = min(times, key=lambda one: one.seconds)
        made.append(StepTime(best.call, now, best.seconds))
        now += best.seconds
    return tuple(made)
