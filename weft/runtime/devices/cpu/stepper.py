"""Kernel calls made one by one, with the clock read between them.

``TimedSteps`` makes them by machine code (``weft_run_steps``, in
``weft.codegen.llvm.runtime_support.step_runner``). ``Stepper`` does so for a sequence of kernels,
and by Python for programs with branches, loops or devices, where the call, about a microsecond, is
part of each time.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from weft.runtime.arena import Pool
from weft.runtime.call_sizes import SizeSolver, steps_at
from weft.runtime.devices.cpu.frame import Frame
from weft.runtime.devices.cpu.rates import measure_bandwidths, measure_fma_peak
from weft.runtime.library import Library, NativeLibrary, function
from weft.runtime.manifest import Condition, KernelCall, Manifest
from weft.runtime.profile import Profile, StepTime, checked_repeat
from weft.runtime.roofline import Roofline, limits_of

RUN_STEPS = "weft_run_steps"
# Numbers of arguments of the calls in machine code.
FORMS = (4, 8, 16, 32, 64)


class TimedSteps:
    """Calls of functions at ``addresses`` with these ``arguments``, made in order by ``run``.

    The table has a record per call: address, number of arguments, arguments.
    """

    def __init__(self, library: NativeLibrary, addresses: Sequence[int],
                 arguments: Sequence[Sequence[int]]) -> None:
        self._library = library  # its code stays mapped
        words = [word for address, values in zip(addresses, arguments, strict=True)
                 for word in (address, len(values), *values)]
        # A form that is larger than the last call reads behind its arguments.
        self._table = (ctypes.c_int64 * (len(words) + FORMS[-1]))(*map(_signed, words))
        self._number = len(addresses)
        self._times = (ctypes.c_int64 * (self._number + 1))()
        self._run = function(library, RUN_STEPS, None, ctypes.c_void_p, ctypes.c_int64,
                             ctypes.c_void_p, ctypes.c_void_p)

    @staticmethod
    def takes(arguments: Sequence[Sequence[int]]) -> bool:
        """Whether calls with these arguments can be made so: none has too many."""
        return all(len(values) <= FORMS[-1] for values in arguments)

    def run(self) -> list[float]:
        """Make the calls; the clock before each of them and after the last, in seconds.

        Ticks of the machine code become seconds by the clock around all calls.
        """
        start = time.perf_counter()
        self._run(ctypes.addressof(self._table), self._number, _CLOCK, self._times)
        taken = time.perf_counter() - start
        first, last = self._times[0], self._times[self._number]
        scale = taken / max(last - first, 1)
        return [start + (tick - first) * scale for tick in self._times]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_CLOCK = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p)


class Stepper:
    """Runs the kernels of one module call one by one; a context manager that owns the frame."""

    def __init__(self, manifest: Manifest, steps: Sequence[KernelCall],
                 functions_of: Callable[[Sequence[KernelCall]], Sequence[Callable[..., None]]],
                 constants: int, frames: Pool[Frame],
                 inputs: list[np.ndarray], outputs: list[np.ndarray], library: Library) -> None:
        self.manifest = manifest
        self.library = library
        self._steps = steps
        self._functions_of = functions_of
        self._solver = SizeSolver(manifest) if manifest.counts else None
        self._constants = constants
        self._frames = frames
        self._arrays = (inputs, outputs)  # keeps them alive while their addresses are in use
        self._frame: Frame | None = None
        self._calls: list[tuple[Callable[..., None], list[int], _Flags]] = []
        self._jumps: dict[int, list[tuple[int, _Flags]]] = {}
        self._timed: TimedSteps | None = None

    def __enter__(self) -> Self:
        frame = self._frame = self._frames.take()
        frame.acquire()
        frame.point_at(*self._arrays)
        self._prepare(frame)
        self._timed = self._machine_code()
        for jump in self.manifest.jumps:
            flags = self._flags(frame, jump.guards)
            self._jumps.setdefault(jump.at, []).append((jump.to, flags))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._frame is not None:
            if error is not None:
                self.library.synchronize()  # kernels may still use the frame
            self._frame.release()
            self._frames.give_back(self._frame)
            self._frame = None

    def _prepare(self, frame: Frame) -> None:
        """Find the kernels and their arguments at the sizes of the frame."""
        self._calls = [
            (call, [frame.value(a, self._constants) for a in step.args],
             self._flags(frame, step.guards))
            for call, step in zip(self._functions_of(self._steps), self._steps, strict=True)]

    def _machine_code(self) -> TimedSteps | None:
        """The calls in machine code, for a sequence of kernels whose number and sizes are known."""
        arguments = [args for _, args, _ in self._calls]
        if self.manifest.jumps or self._solver is not None or any(s.guards for s in self._steps) \
                or not isinstance(self.library, NativeLibrary) \
                or not TimedSteps.takes(arguments):
            return None
        addresses = [self.library.address(step.symbol) for step in self._steps]
        return TimedSteps(self.library, addresses, arguments)

    def repeated(self, at: int, count: int) -> list[float]:
        """Seconds of ``count`` calls of the kernel at one step, one after another."""
        _, arguments, _ = self._calls[at]
        if not isinstance(self.library, NativeLibrary) or not TimedSteps.takes([arguments]):
            return []
        address = self.library.address(self._steps[at].symbol)
        timed = TimedSteps(self.library, [address] * count, [arguments] * count)
        clock = timed.run()
        return [max(end - start, 1e-9) for start, end in itertools.pairwise(clock)]

    def _timed_steps(self, clock: Sequence[float]) -> list[StepTime]:
        return [StepTime(step, start, max(end - start, 1e-9))
                for step, start, end in zip(self._steps, clock, clock[1:], strict=False)]

    def _read_counts(self, frame: Frame, at: int) -> None:
        """Prepare the calls after call ``at``, which may have counted sizes."""
        counts = {count.name: ctypes.c_int64.from_address(
            frame.value(count.counts, self._constants) + 8 * count.which).value
            for count in self.manifest.counts if count.at == at}
        if counts and self._solver is not None:
            frame.sizes = self._solver.counted(frame.sizes, counts)
            self._steps = steps_at(self.manifest, frame.sizes)
            self._prepare(frame)
            self._store_counts(frame)

    def _store_counts(self, frame: Frame) -> None:
        """Write the counts where the main function writes them."""
        array = self._arrays[1][-1]
        for number, count in enumerate(self.manifest.counts):
            array[number] = frame.sizes.symbols[count.name]

    def _flags(self, frame: Frame, guards: Sequence[Condition]) -> _Flags:
        return [(frame.value(buffer, self._constants), expected) for buffer, expected in guards]

    def _hold(self, flags: _Flags) -> bool:
        """Whether all conditions are as expected, once the kernels that compute them are done."""
        if flags:
            self.library.synchronize()
        return all(_flag(address) is expected for address, expected in flags)

    def run(self, *, is_timed: bool = True, check: Callable[[], None] | None = None
            ) -> list[StepTime]:
        """Make the calls of one run, following its branches and loops; their times in order.

        All kernels are done at the end. Unless ``is_timed``, the host does not wait for each
        kernel, and times are those of launches. ``check`` is called ahead of each kernel, and may
        raise.
        """
        if is_timed and check is None and self._timed is not None:
            return self._timed_steps(self._timed.run())
        clock = time.perf_counter
        frame = self._frame
        made: list[StepTime] = []
        at = 0
        wait = self.library.synchronize
        now = clock()
        while True:
            back = next((to for to, flags in self._jumps.get(at, ()) if self._hold(flags)), None)
            if back is not None:
                at = back
                continue
            if at == len(self._steps):
                wait()
                return made
            call, pointers, flags = self._calls[at]
            if self._hold(flags):
                if check is not None:
                    check()
                call(*pointers)
                if is_timed:
                    wait()
                before, now = now, clock()
                made.append(StepTime(self._steps[at], before, max(now - before, 1e-9)))
                if self._solver is not None and frame is not None:
                    self._read_counts(frame, at)
            at += 1


def profile_module(stepper: Stepper, call: Callable[[], Any], repeat: int,
                   num_threads: int) -> Profile:
    """Profile the steps, and ``call``, the whole module; ``OptionError`` for a bad ``repeat``."""
    checked_repeat(repeat)
    early_peak = measure_fma_peak(stepper.library, num_threads)
    stepper.run()  # warm-up: page faults and cold caches
    # Every run has the same inputs and therefore makes the same calls.
    runs = zip(*(stepper.run() for _ in range(repeat)), strict=True)
    best = [min(times, key=lambda time: time.seconds) for times in runs]
    starts = _starts([step.seconds for step in best])
    steps = tuple(replace(s, start=start) for s, start in zip(best, starts, strict=True))
    module = min(_seconds(call) for _ in range(repeat))
    peak = max(early_peak, measure_fma_peak(stepper.library, num_threads))
    library = stepper.library
    # An iteration of a loop may move parts of its operands only; the bytes of a kernel are of whole
    # operands, so a limit computed from them would be wrong.
    if not isinstance(library, NativeLibrary) or not steps or stepper.manifest.jumps:
        return Profile(steps, module, peak, num_threads)
    roofline = Roofline(peak, measure_bandwidths(library, num_threads))
    limits = limits_of(stepper.manifest, [step.call for step in steps], roofline)
    return Profile(steps, module, peak, num_threads, roofline, tuple(limits))


_SLICE_SECONDS = 0.002  # what the scheduler seldom interrupts


def least_seconds(stepper: Stepper, at: int, once: float, budget: float) -> float:
    """The shortest time of one kernel, that took ``once`` in its first call, in repeated calls."""
    if once > _SLICE_SECONDS:
        rounds = max(3, int(budget / once))
        return min(_thread_seconds(lambda: stepper.repeated(at, 1)) for _ in range(rounds))
    count = max(3, int(_SLICE_SECONDS / once))
    rounds = max(3, int(budget / _SLICE_SECONDS))
    return min((s for _ in range(rounds) for s in stepper.repeated(at, count)), default=once)


def _thread_seconds(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


# Addresses of branch conditions, and the value that each must have for the step to run.
_Flags: TypeAlias = "list[tuple[int, bool]]"


def _flag(address: int) -> bool:
    """A branch condition: one byte."""
    return bool(ctypes.c_uint8.from_address(address).value)


def _starts(seconds: Sequence[float]) -> list[float]:
    starts, now = [], 0.0
    for taken in seconds:
        starts.append(now)
        now += taken
    return starts


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
