"""Profiles a module kernel by kernel.

The kernels are called one by one in the order of ``weft_main``, on the same memory, and the clock
is read between them: by machine code (``timed_steps.py``), or by Python for programs with branches,
loops or devices, where the call, about a microsecond, is part of each time. The best of several
runs is reported. Each iteration of a loop counts as a call.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from weft.runtime.arena import Pool
from weft.runtime.bandwidth import measure_bandwidths
from weft.runtime.call_sizes import SizeSolver, steps_at
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST
from weft.runtime.frame import Frame
from weft.runtime.library import Library, NativeLibrary
from weft.runtime.manifest import Condition, KernelCall, Manifest
from weft.runtime.peak import measure_fma_peak
from weft.runtime.roofline import Limit, Roofline, limits_of
from weft.runtime.sizes import evaluate
from weft.runtime.table import render_table
from weft.runtime.timed_steps import TimedSteps
from weft.support import trace
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.log import Level, debug


@dataclass(frozen=True, slots=True)
class StepTime:
    """One kernel call: its duration and its start, in seconds, and its work.

    In a profile these are the best duration, and the start if every call took its best.
    """

    call: KernelCall
    start: float
    seconds: float

    @property
    def flops(self) -> int:
        """Floating-point operations of the call."""
        return evaluate(self.call.flops, {})

    @property
    def bytes_moved(self) -> int:
        """Bytes that the call reads and writes."""
        return evaluate(self.call.bytes_moved, {})


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """All calls of one kernel within a run of the module.

    ``limit`` is the time in seconds that they take at least (``roofline.py``); nan if unknown.
    """

    symbol: str
    op: str
    implementation: str
    calls: int
    seconds: float
    flops: int
    bytes_moved: int
    limit: float = math.nan

    @property
    def gflops(self) -> float:
        return self.flops * 1e-9 / self.seconds

    @property
    def gbytes(self) -> float:
        """GB/s, counting every argument and result once."""
        return self.bytes_moved * 1e-9 / self.seconds


@dataclass(frozen=True, slots=True)
class Profile:
    """``steps`` in order of execution; ``peak_gflops`` is the peak of ``num_threads`` together.

    ``module_seconds`` is the best time of a whole call from Python. ``roofline`` is what the
    machine reached at that time, and ``limits`` the seconds that it allows for each step; ``None``
    and empty where nothing can measure them, and for programs with loops.
    """

    steps: tuple[StepTime, ...]
    module_seconds: float
    peak_gflops: float
    num_threads: int
    roofline: Roofline | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def limit_seconds(self) -> float:
        """The time that the kernels of a call take at least; nan if unknown."""
        return sum(limit.seconds for limit in self.limits) if self.limits else math.nan

    @property
    def kernels(self) -> tuple[KernelProfile, ...]:
        """The distinct kernels, slowest first."""
        groups: dict[str, list[StepTime]] = {}
        seconds: dict[str, float] = {}
        for number, step in enumerate(self.steps):
            symbol = step.call.symbol
            groups.setdefault(symbol, []).append(step)
            limit = self.limits[number].seconds if self.limits else math.nan
            seconds[symbol] = seconds.get(symbol, 0.0) + limit
        found = [_joined(group, seconds[symbol]) for symbol, group in groups.items()]
        return tuple(sorted(found, key=lambda k: (-k.seconds, k.symbol)))

    def table(self, limit: int | None = None) -> str:
        """A text table of the slowest ``limit`` kernels (``None``: all), then a line of totals."""
        kernels = self.kernels
        total = sum(k.seconds for k in kernels) or 1e-12
        columns = ("time [ms]", "share", "calls", "MFLOP", "GFLOP/s", "of peak", "GB/s",
                   "of limit", "operators", "implementation")
        rows = [self._row(kernel, total) for kernel in kernels[:limit]]
        text = render_table(columns, rows, left=("operators", "implementation"))
        flops = sum(k.flops for k in kernels)
        hidden = len(kernels) - len(rows)
        more = f", {hidden} more kernels not shown" if hidden > 0 else ""
        rate = flops * 1e-9 / self.module_seconds
        return (f"{text}\nkernels {total * 1e3:.3f} ms{more}; whole call "
                f"{self.module_seconds * 1e3:.3f} ms, {rate:.1f} GFLOP/s{self._peak()}")

    def _peak(self) -> str:
        if math.isnan(self.peak_gflops):
            return ""
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        limit = "" if not self.limits else (
            f"; limit {self.limit_seconds * 1e3:.3f} ms, of which the call reaches "
            f"{self.limit_seconds / self.module_seconds:.0%}")
        return f"; FMA peak {self.peak_gflops:.1f} GFLOP/s on {threads}{limit}"

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the calls in sequence as a trace for chrome://tracing or Perfetto.

        Each device has a lane for each of its streams.
        """
        lanes = {name: number for number, name in enumerate(dict.fromkeys(
            lane_of(step.call) for step in self.steps))}
        events: list[dict[str, Any]] = [
            {"name": s.call.op or s.call.symbol, "cat": "kernel", "ph": "X", "pid": 0,
             "tid": lanes[lane_of(s.call)], "ts": s.start * 1e6, "dur": s.seconds * 1e6,
             "args": {"symbol": s.call.symbol, "implementation": s.call.implementation,
                      "flops": s.call.flops, "bytes": s.call.bytes_moved}}
            for s in self.steps]
        if len(lanes) > 1:
            events += [{"name": "thread_name", "ph": "M", "pid": 0, "tid": number,
                        "args": {"name": name}} for name, number in lanes.items()]
        document = {"traceEvents": events, "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(document), encoding="utf-8")

    def _row(self, kernel: KernelProfile, total: float) -> tuple[str, ...]:
        share = kernel.gflops / self.peak_gflops  # nan: the target has no peak meter
        return (f"{kernel.seconds * 1e3:.3f}", f"{kernel.seconds / total:.1%}",
                str(kernel.calls), f"{kernel.flops * 1e-6:.1f}", f"{kernel.gflops:.1f}",
                "" if math.isnan(share) else f"{share:.0%}", f"{kernel.gbytes:.1f}",
                "" if math.isnan(kernel.limit) else f"{kernel.limit / kernel.seconds:.0%}",
                kernel.op or kernel.symbol,
                kernel.implementation)


def lane_of(call: KernelCall) -> str:
    """Where a call runs, as traces name it: the host, a stream of a device, or a link."""
    if "sim" in (call.device.kind, call.source.kind) or call.waits:
        is_transfer = call.symbol == DEVICE_COPY and call.source != call.device
        return f"{call.source} -> {call.device}" if is_transfer else str(call.device)
    return str(call.device) if call.device == HOST else f"{call.device} stream {call.stream}"


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


def checked_repeat(repeat: object) -> int:
    """``repeat``; ``OptionError`` unless it is a positive integer."""
    if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
        raise OptionError("invalid repeat", expected="a whole number above 0", got=repr(repeat))
    return repeat


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


def report_kernels(steps: Sequence[StepTime]) -> None:
    """One line per kernel call for ``WEFT_DEBUG=2``, one span each for ``WEFT_TRACE``."""
    recorder = trace.recorder()
    for number, step in enumerate(steps):
        call, seconds = step.call, step.seconds
        debug(Level.KERNELS, "kernel",
              f"{number:3d} {seconds * 1e6:10.1f} us {step.flops * 1e-9 / seconds:8.1f} GFLOP/s "
              f"{step.bytes_moved * 1e-9 / seconds:7.1f} GB/s  {call.op or call.symbol} "
              f"({call.implementation})")
        if recorder is not None:
            recorder.add(call.op or call.symbol, "kernel", step.start, step.start + seconds,
                         implementation=call.implementation)


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


def _joined(group: Sequence[StepTime], limit: float) -> KernelProfile:
    first = group[0].call
    return KernelProfile(first.symbol, first.op, first.implementation, len(group),
                         sum(s.seconds for s in group), sum(s.flops for s in group),
                         sum(s.bytes_moved for s in group), limit)
