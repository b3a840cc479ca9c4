"""The profile of a program, kernel by kernel.

The kernels are called one by one in the order of ``weft_main``, on the same memory, and the clock
is read between them (``devices/cpu/stepper.py``). The best of several runs is reported. Each
iteration of a loop counts as a call.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST
from weft.runtime.manifest import KernelCall
from weft.runtime.roofline import Limit, Roofline
from weft.runtime.sizes import evaluate
from weft.support import trace
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.log import Level, debug
from weft.support.markup import html_table

_COLUMNS = ("time [ms]", "share", "calls", "MFLOP", "GFLOP/s", "of peak", "GB/s", "of limit",
            "operators", "implementation")


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
class Exchange:
    """A collective of a program for many devices, and the bytes that each of them receives."""

    collective: str
    axes: tuple[str, ...]
    nbytes: float


@dataclass(frozen=True, slots=True)
class Profile:
    """``steps`` in order of execution; ``peak_gflops`` is the peak of ``num_threads`` together.

    ``module_seconds`` is the best time of a whole call from Python. ``roofline`` is what the
    machine reached at that time, and ``limits`` the seconds that it allows for each step; ``None``
    and empty where nothing can measure them, and for programs with loops. ``exchanges`` are the
    collectives of a module that runs all devices of a mesh, those of a loop once.
    """

    steps: tuple[StepTime, ...]
    module_seconds: float
    peak_gflops: float
    num_threads: int
    roofline: Roofline | None = None
    limits: tuple[Limit, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

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
        rows = [self._row(kernel, total) for kernel in kernels[:limit]]
        text = render_table(_COLUMNS, rows, left=("operators", "implementation"))
        return "\n".join([text, self._totals(len(rows)), *self._exchanged()])

    def _exchanged(self) -> list[str]:
        """A line for each collective, and their sum."""
        if not self.exchanges:
            return []
        rows = [(e.collective, ", ".join(e.axes), f"{e.nbytes:,.0f}") for e in self.exchanges]
        table = render_table(("collective", "along", "bytes"), rows, left=("collective", "along"))
        return [table, f"each device receives {sum(e.nbytes for e in self.exchanges):,.0f} bytes"]

    def _repr_html_(self) -> str:
        kernels = self.kernels
        total = sum(k.seconds for k in kernels) or 1e-12
        rows = [(*self._row(k, total), k.seconds / (kernels[0].seconds or 1e-12)) for k in kernels]
        table = html_table((*_COLUMNS, ""), rows, numeric=range(8), bars=(len(_COLUMNS),))
        return f"{table}<p>{self._totals(len(kernels))}</p>"

    def _totals(self, shown: int) -> str:
        kernels = self.kernels
        total = sum(k.seconds for k in kernels)
        flops = sum(k.flops for k in kernels)
        hidden = len(kernels) - shown
        more = f", {hidden} more kernels not shown" if hidden > 0 else ""
        rate = flops * 1e-9 / self.module_seconds
        return (f"kernels {total * 1e3:.3f} ms{more}; whole call "
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


def checked_repeat(repeat: object) -> int:
    """``repeat``; ``OptionError`` unless it is a positive integer."""
    if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
        raise OptionError("invalid repeat", expected="a whole number above 0", got=repr(repeat))
    return repeat


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


def _joined(group: Sequence[StepTime], limit: float) -> KernelProfile:
    first = group[0].call
    return KernelProfile(first.symbol, first.op, first.implementation, len(group),
                         sum(s.seconds for s in group), sum(s.flops for s in group),
                         sum(s.bytes_moved for s in group), limit)


def render_table(columns: Sequence[str], rows: Sequence[Sequence[str]],
                 left: Collection[str] = ()) -> str:
    """Columns as wide as their widest cell; those named in ``left`` are aligned left."""
    lines = [tuple(columns), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]

    def shown(line: Sequence[str]) -> str:
        cells = [cell.ljust(width) if name in left else cell.rjust(width)
                 for cell, width, name in zip(line, widths, columns, strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(shown, lines))
