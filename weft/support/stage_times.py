"""How the time of a compilation splits into stages, by the clock and of CPUs.

A stage counts its own time: that of the stages inside of it, on the same thread, is theirs. Times
of threads and worker processes are added, so the sum may exceed the time that a user waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any

from weft.support.dataclass import dataclass

IMPORTS = "import of modules"


@dataclass(slots=True)
class StageTime:
    """Seconds by the clock and of CPUs, and how often a stage ran."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    count: int = 0

    def add(self, other: StageTime) -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.count += other.count


@dataclass(slots=True)
class StageTimes:
    """The times of stages by name, in the order in which they first ended; thread-safe."""

    stages: dict[str, StageTime] = field(default_factory=dict)
    _began: float = field(default_factory=time.process_time)
    _elsewhere: float = 0.0  # CPU seconds of other processes
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, one: StageTime) -> None:
        """Add the own time of a stage."""
        with self._lock:
            self.stages.setdefault(name, StageTime()).add(one)

    def merge(self, others: Mapping[str, StageTime]) -> None:
        """Add the times of another process."""
        for name, one in others.items():
            self.add(name, one)
            with self._lock:
                self._elsewhere += one.cpu_seconds

    def outside(self) -> float:
        """CPU seconds of this process, since times are collected, in no stage on any thread."""
        counted = sum(one.cpu_seconds for one in self.stages.values()) - self._elsewhere
        return max(time.process_time() - self._began - counted, 0.0)

    def rows(self) -> list[tuple[str, float, float, int]]:
        """Name, seconds, CPU seconds and count, the most CPU seconds first."""
        found = [(name, one.seconds, one.cpu_seconds, one.count)
                 for name, one in self.stages.items()]
        return sorted(found, key=lambda row: -row[2])


@dataclass(slots=True)
class _Open:
    """A stage that runs: what the stages inside of it took on this thread."""

    thread: int
    inner_seconds: float = 0.0
    inner_cpu: float = 0.0


_TIMES: ContextVar[StageTimes | None] = ContextVar("stage times", default=None)
_OPEN: ContextVar[_Open | None] = ContextVar("open stage", default=None)


@contextmanager
def collected() -> Iterator[StageTimes]:
    """Collect the times of stages in the block, in threads with a copy of its context, too."""
    times = StageTimes()
    token = _TIMES.set(times)
    try:
        with _timed_imports():
            yield times
    finally:
        _TIMES.reset(token)


def collector() -> StageTimes | None:
    """The collector of the times of stages; ``None`` if they are not collected."""
    return _TIMES.get()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time of the block as that of a stage, if times are collected."""
    times = _TIMES.get()
    if times is None:
        yield
        return
    around, own = _OPEN.get(), _Open(threading.get_ident())
    token = _OPEN.set(own)
    start, cpu = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        seconds, used = time.perf_counter() - start, time.thread_time() - cpu
        _OPEN.reset(token)
        times.add(name, StageTime(seconds - own.inner_seconds, used - own.inner_cpu, 1))
        if around is not None and around.thread == own.thread:
            around.inner_seconds += seconds
            around.inner_cpu += used


@contextmanager
def _timed_imports() -> Iterator[None]:
    """Count the execution of modules as a stage of its own, wherever it happens."""
    with _timed_loader(SourceFileLoader), _timed_loader(ExtensionFileLoader):
        yield


@contextmanager
def _timed_loader(kind: type[Any]) -> Iterator[None]:
    own = vars(kind).get("exec_module")
    usual = kind.exec_module

    def exec_module(loader: Any, module: ModuleType) -> None:
        with stage(IMPORTS):
            usual(loader, module)

    kind.exec_module = exec_module
    try:
        yield
    finally:
        if own is None:
            del kind.exec_module
        else:
            kind.exec_module = own
