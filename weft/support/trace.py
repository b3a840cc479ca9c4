"""Spans of time for people: a Chrome trace of compiling and running on one clock.

Recording costs nothing until ``WEFT_TRACE`` (or ``config(trace=...)``) names a file, or a
``Recorder`` is active. The format is the Trace Event Format that chrome://tracing and Perfetto
read: complete events (``ph: X``) with microsecond times.
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
    """Collects events from any thread."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, name: str, category: str, start: float, end: float, **args: Any) -> None:
        """A span between two readings of ``time.perf_counter``."""
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
        """Write all events so far as one JSON file."""
        document = {"traceEvents": list(self.events), "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(document), encoding="utf-8")


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


_recorders: dict[Path, Recorder] = {}
_recorders_lock = threading.Lock()


def recorder() -> Recorder | None:
    """The recorder of the file that ``config.trace`` names now; it is written at exit."""
    path = config.trace
    if path is None:
        return None
    with _recorders_lock:
        if not _recorders:
            atexit.register(save_all)
        return _recorders.setdefault(path.absolute(), Recorder())


def save_all() -> None:
    """Write every trace file that is being recorded."""
    with _recorders_lock:
        for path, active in _recorders.items():
            try:
                active.save(path)
            except OSError as error:  # the work is done, and the process may be ending
                logger("trace").warning("the trace cannot be written to %s: %s", path,
                                        error.strerror or error)


@contextmanager
def span(name: str, category: str = "compile", **args: Any) -> Iterator[None]:
    """Record the time the block takes, where a trace is wanted."""
    active = recorder()
    if active is None:
        yield
        return
    start = time.perf_counter()
    try:
        yield
    finally:
        active.add(name, category, start, time.perf_counter(), **args)
