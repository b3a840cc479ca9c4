"""Tracing of compilation and execution in Chrome's Trace Event Format.

Nothing is recorded until ``WEFT_TRACE`` (or ``config(trace=...)``) names a file. The files contain
complete events (``ph: X``) with times in microseconds; chrome://tracing and Perfetto show them.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.support.config import config
from weft.support.log import logger


class Recorder:
    """Collects events; thread-safe."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, name: str, category: str, start: float, end: float, **args: Any) -> None:
        """Add a span between two values of ``time.perf_counter``, in seconds."""
        event: dict[str, Any] = {
            "name": name, "cat": category, "ph": "X", "ts": start * 1e6,
            "dur": (end - start) * 1e6, "pid": os.getpid(), "tid": threading.get_native_id(),
        }
        if args:
            event["args"] = {key: _plain(value) for key, value in args.items()}
        with self._lock:
            self._events.append(event)

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        with self._lock:
            return tuple(self._events)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all events recorded so far to a JSON file."""
        document = {"traceEvents": list(self.events), "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(document), encoding="utf-8")


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


_recorders: dict[Path, Recorder] = {}
_recorders_lock = threading.Lock()


def recorder() -> Recorder | None:
    """The recorder of the file ``config.trace``, which is written at exit; ``None`` if unset."""
    path = config.trace
    if path is None:
        return None
    with _recorders_lock:
        if not _recorders:
            atexit.register(save_all)
        return _recorders.setdefault(path.absolute(), Recorder())


def save_all() -> None:
    """Write all trace files."""
    with _recorders_lock:
        for path, active in _recorders.items():
            try:
                active.save(path)
            except OSError as error:  # called at exit, so do not raise
                logger("trace").warning("cannot write the trace to %s: %s", path,
                                        error.strerror or error)


@contextmanager
def span(name: str, category: str = "compile", **args: Any) -> Iterator[None]:
    """Record the duration of the block if tracing is on."""
    active = recorder()
    if active is None:
        yield
        return
    start = time.perf_counter()
    try:
        yield
    finally:
        active.add(name, category, start, time.perf_counter(), **args)
