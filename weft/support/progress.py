"""Progress reports: a bar on a terminal, lines in a pipe.

The compiler reports to the active reporter of the current context. The command line activates one
with ``with report_to(reporter_for(sys.stderr)):``. Without one, work of more than a second shows
bars where somebody sees them (``late_bars.py``); ``WEFT_PROGRESS=0`` turns these off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

from weft.support.config import config


class Task(Protocol):
    """A task in progress."""

    def advance(self, detail: str = "") -> None:
        """Report that one more step is done; ``detail`` names it."""


class Reporter(Protocol):
    """A destination of progress reports."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """A task named ``title`` of ``total`` steps; ``None`` if the number is unknown."""
        ...


class _SilentTask:
    def advance(self, detail: str = "") -> None:
        """Do nothing."""


UNWATCHED: Task = _SilentTask()


class SilentReporter:
    """A reporter that prints nothing."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:  # noqa: ARG002
        yield UNWATCHED


class _LineTask:
    def __init__(self, stream: TextIO, title: str, total: int | None) -> None:
        self._stream = stream
        self._title = title
        self._total = total
        self.done = 0
        self._last = time.monotonic()

    def advance(self, detail: str = "") -> None:
        self.done += 1
        if time.monotonic() - self._last >= 2.0:  # few lines, for log files
            self._last = time.monotonic()
            of = f"/{self._total}" if self._total else ""
            self._stream.write(f"{self._title}: {self.done}{of} {detail}".rstrip() + "\n")
            self._stream.flush()


class LineReporter:
    """Writes a line at the end of each task, and every two seconds of a long one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        start = time.perf_counter()
        task = _LineTask(self._stream, title, total)
        yield task
        count = f" ({task.done})" if task.done else ""
        self._stream.write(f"{title}{count}: {time.perf_counter() - start:.2f} s\n")
        self._stream.flush()


class _BarTask:
    def __init__(self, bar: Any, task_id: Any) -> None:
        self._bar = bar
        self._id = task_id

    def advance(self, detail: str = "") -> None:
        self._bar.update(self._id, advance=1, detail=detail)


def new_bars(stream: TextIO | None, *, transient: bool = False, rate: float = 10) -> Any:
    """The bars of rich on ``stream``; ``None`` is the output of the notebook.

    With ``transient`` they vanish when they stop. They are drawn ``rate`` times a second.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Count(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.completed:.0f}/{task.total:.0f}" if task.total else "")

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # truncate details, not numbers
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=28), Count(), TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}", table_column=rest),
        console=Console(file=stream), expand=True, transient=transient, refresh_per_second=rate)


class BarReporter:
    """Shows a bar per task, by rich; tasks may nest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Any = None

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        outermost = self._bars is None
        if outermost:
            self._bars = new_bars(self._stream)
            self._bars.start()
        bars = self._bars
        task_id = bars.add_task(title, total=total, detail="")
        try:
            yield _BarTask(bars, task_id)
            task = next(t for t in bars.tasks if t.id == task_id)
            steps = task.total or task.completed or 1
            bars.update(task_id, total=steps, completed=steps, detail="")
        finally:
            if outermost:
                bars.stop()
                self._bars = None


def reporter_for(stream: TextIO) -> Reporter:
    """Bars if ``stream`` is a terminal, else lines."""
    return BarReporter(stream) if stream.isatty() else LineReporter(stream)


_active: ContextVar[Reporter | None] = ContextVar("weft_progress", default=None)


def active_reporter() -> Reporter | None:
    """The reporter of the current context, if one is active."""
    return _active.get()


@contextmanager
def report_to(reporter: Reporter) -> Iterator[None]:
    """Send the progress of the block to ``reporter``."""
    token = _active.set(reporter)
    try:
        yield
    finally:
        _active.reset(token)


# When the work of the current context began, for the reporter that shows long work.
_start: ContextVar[float | None] = ContextVar("weft_work_start", default=None)


@contextmanager
def work() -> Iterator[None]:
    """One piece of work of several tasks, whose time counts as a whole."""
    token = None if _start.get() is not None else _start.set(time.monotonic())
    try:
        yield
    finally:
        if token is not None:
            _start.reset(token)


@contextmanager
def task(title: str, total: int | None = None) -> Iterator[Task]:
    """A task of the active reporter, and within it that reporter for tasks of this one."""
    reporter = _active.get()
    if reporter is not None:
        with reporter.task(title, total) as current:
            yield current
        return
    with report_to(_default_reporter()), task(title, total) as current:
        yield current


def _default_reporter() -> Reporter:
    from weft.support.late_bars import LateReporter, is_watched

    if not config.progress or not is_watched(sys.stderr):
        return SilentReporter()
    start = _start.get()
    return LateReporter(sys.stderr, time.monotonic() if start is None else start)
