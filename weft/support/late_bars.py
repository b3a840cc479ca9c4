"""Progress of long work in Python: bars that appear after a second, and vanish at the end.

Short work prints nothing and does not import rich. Bars appear on a terminal and in notebooks only:
a log file of a user's program gets no lines that he did not ask for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from weft.support.dataclass import dataclass

# Seconds of work before it shows.
DELAY = 1.0
# Bars are drawn so often a second: output that is not read shall not fill a terminal and block it.
RATE = 2.0


@dataclass(slots=True)
class LateTask:
    """A task that a bar may show from some moment on; ``done`` counts its steps before that."""

    title: str
    total: int | None
    done: int = 0
    detail: str = ""
    bars: Any = None
    bar: Any = None

    def advance(self, detail: str = "") -> None:
        self.done += 1
        self.detail = detail
        if self.bars is not None:
            self.bars.update(self.bar, completed=self.done, detail=detail)

    def show(self, bars: Any) -> None:
        """Add this task to the bars of rich."""
        self.bar = bars.add_task(self.title, total=self.total, completed=self.done,
                                 detail=self.detail)
        self.bars = bars

    def finish(self) -> None:
        if self.bars is not None:
            steps = self.total or self.done or 1
            self.bars.update(self.bar, total=steps, completed=steps, detail="")


class LateReporter:
    """Shows the tasks of one piece of work once it has taken ``DELAY`` seconds since ``start``.

    A timer's thread shows them, since a task may report nothing for long.
    """

    def __init__(self, stream: TextIO, start: float) -> None:
        self._stream = stream
        self._start = start
        self._lock = threading.Lock()
        self._tasks: list[LateTask] = []
        self._bars: Any = None

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[LateTask]:
        made = LateTask(title, total)
        is_outermost = not self._tasks
        with self._lock:
            self._tasks.append(made)
            if self._bars is not None:
                made.show(self._bars)
        timer = self._timer() if is_outermost else None
        try:
            yield made
        finally:
            made.finish()
            if timer is not None:
                timer.cancel()
                self._close()

    def _timer(self) -> threading.Timer:
        left = max(self._start + DELAY - time.monotonic(), 0.0)
        timer = threading.Timer(left, self._show)
        timer.daemon = True
        timer.start()
        return timer

    def _show(self) -> None:
        """Show all tasks so far; runs in the timer's thread."""
        from weft.support.progress import new_bars

        bars = new_bars(None if in_notebook() else self._stream, transient=True,
                        rate=RATE)
        with self._lock:
            if not self._tasks:
                return  # the work ended meanwhile
            for task in self._tasks:
                task.show(bars)
            self._bars = bars
            bars.start()

    def _close(self) -> None:
        with self._lock:
            self._tasks.clear()
            if self._bars is not None:
                self._bars.stop()
                self._bars = None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def is_watched(stream: TextIO | None) -> bool:
    """Whether somebody sees bars that are written to ``stream``."""
    if stream is None:
        return False  # a process without a console
    try:
        return stream.isatty() or in_notebook()
    except ValueError:
        return False  # it is closed
