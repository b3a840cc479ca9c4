"""``LaneModule``: a compiled program that runs on simulated devices."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.runtime.devices.sim.library import SimLibrary
from weft.runtime.devices.sim.memory import (
    CallMemory,
    DeviceMemories,
    arena_bytes,
    check_memories,
)
from weft.runtime.devices.sim.program import LaneProgram, LaneRun
from weft.runtime.module import CompiledModule
from weft.runtime.outputs import output_maker
from weft.runtime.profile import Profile, StepTime, report_kernels
from weft.runtime.run_control import RunControl
from weft.runtime.sized_module import AtSizes, SharedCode
from weft.runtime.threads import num_threads
from weft.support.errors import InternalError, OptionError


class LaneModule(CompiledModule):
    """A program whose kernels run on simulated devices, and whose copies take their links' time.

    It is called as a ``CompiledModule``, and gives the same bytes as on one device.
    """

    def _bind_code(self) -> None:
        if not isinstance(self.library, SimLibrary):
            raise InternalError("a program for simulated devices needs code for each",
                                got=type(self.library).__name__)
        self._sim = self.library
        self._counted = None
        self._memories = DeviceMemories(self.manifest, self._constants)
        self._program = LaneProgram(self.manifest, self.library)
        self._bind_sizes()

    def _bind_sizes(self) -> None:
        sizes = self._sizes
        self._makers = [output_maker(s) for s in sizes.outputs]
        check_memories(self.manifest, sizes)
        self._arena_bytes = arena_bytes(self.manifest, sizes)

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        return functools.partial(self._execute, arrays, outputs)

    def _run(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None
             ) -> list[np.ndarray]:
        times: list[StepTime] | None = [] if self._watched else None
        results = self._run_lanes(self._arrays(values), outputs, times)
        if times is not None:
            report_kernels(sorted(times, key=lambda step: step.start))
        return results

    def _run_controlled(self, inputs: list[np.ndarray], control: RunControl) -> list[np.ndarray]:
        return self._run_lanes(inputs, None, control.times, control)

    def _run_lanes(self, inputs: list[np.ndarray], given: Sequence[np.ndarray] | None,
                   times: list[StepTime] | None = None, control: RunControl | None = None
                   ) -> list[np.ndarray]:
        outputs = self._made_outputs() if given is None else list(given)
        self._sim.apply_threads(num_threads(self.manifest.threads))
        memory = CallMemory(self._memories, self._sizes, inputs, outputs, self._extras())
        try:
            memory.acquire(self._arena_bytes)
            LaneRun(self._program, memory, self._sizes, times).run(control)
        finally:
            memory.release()
        return outputs

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every call over ``repeat`` runs: the timeline of the fastest, a lane per device."""
        if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
            raise OptionError("invalid repeat", expected="a whole number above 0",
                              got=repr(repeat))
        arrays = self._arrays(self._signature.bind(args, kwargs))
        self._execute(arrays)  # page faults and cold caches
        runs = [self._timed_run(arrays) for _ in range(repeat)]
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            self._execute(arrays)
            seconds.append(time.perf_counter() - start)
        best = min(runs, key=lambda steps: max((s.start + s.seconds for s in steps), default=0.0))
        return Profile(tuple(best), min(seconds), math.nan, num_threads(self.manifest.threads))

    def _timed_run(self, arrays: list[np.ndarray]) -> list[StepTime]:
        """The calls of a run in order of their starts, from 0 on."""
        times: list[StepTime] = []
        begin = time.perf_counter()
        with self._state.lock:
            self._run_lanes(arrays, None, times)
        made = [StepTime(one.call, one.start - begin, one.seconds) for one in times]
        return sorted(made, key=lambda step: step.start)


class SharedOnLanes(SharedCode, LaneModule):
    """The code of a program with symbols for simulated devices."""


class AtSizesOnLanes(AtSizes, LaneModule):
    """The module for the sizes of a call of a program for simulated devices."""
