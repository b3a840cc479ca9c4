"""Progress reports: a bar on a terminal, lines in a pipe.

The compiler reports to the active reporter of the current context. The command line activates one
with ``with report_to(reporter_for(sys.stderr)):``. Without one, work of more than ``DELAY`` seconds
shows bars on a terminal and in notebooks, which vanish at its end; shorter work prints nothing and
does not import rich, and a log file gets no lines. ``WEFT_PROGRESS=0`` turns these bars off.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

from weft.support.config import config
from weft.support.dataclass import dataclass

# Seconds of work before it shows.
DELAY = 1.0
# Bars are drawn so often a second: output that is not read shall not fill a terminal and block it.
RATE = 2.0


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


@dataclass(slots=True)
class BarTask:
    """A task with a bar once ``show`` was called; ``done`` counts its steps, also before that."""

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


class BarReporter:
    """Shows a bar per task, by rich; tasks may nest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Any = None

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        is_outermost = self._bars is None
        if is_outermost:
            self._bars = new_bars(self._stream)
            self._bars.start()
        task = BarTask(title, total)
        task.show(self._bars)
        try:
            yield task
            task.finish()
        finally:
            if is_outermost:
                self._bars.stop()
                self._bars = None


class DelayedReporter:
    """Shows the tasks of one piece of work once it has taken ``DELAY`` seconds since ``start``.

    A timer's thread shows them, since a task may report nothing for long.
    """

    def __init__(self, stream: TextIO, start: float) -> None:
        self._stream = stream
        self._start = start
        self._lock = threading.Lock()
        self._tasks: list[BarTask] = []
        self._bars: Any = None

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[BarTask]:
        made = BarTask(title, total)
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
        bars = new_bars(None if in_notebook() else self._stream, transient=True, rate=RATE)
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
    """Whether bars that are written to ``stream`` are shown to a user."""
    if stream is None:
        return False  # a process without a console
    try:
        return stream.isatty() or in_notebook()
    except ValueError:
        return False  # it is closed


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
    if not config.progress or not is_watched(sys.stderr):
        return SilentReporter()
    start = _start.get()
    return DelayedReporter(sys.stderr, time.monotonic() if start is None else start)
