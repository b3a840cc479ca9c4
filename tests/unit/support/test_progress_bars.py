"""Long work in Python shows bars where somebody sees them, and nothing anywhere else."""

import io
import sys
import time

import pytest

from weft.support import progress
from weft.support.config import config


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of standard error; pytest sets that anew for each phase of a test."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def wait_for(text: str, screen: Terminal) -> str:
    """What is on the screen when ``text`` is, or after ten seconds."""
    deadline = time.monotonic() + 10
    while text not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return screen.getvalue()


def test_a_bar_appears_on_a_terminal(monkeypatch):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.01)
    with progress.task("building kernels", 3) as task:
        task.advance("tanh")
        assert "1/3" in wait_for("1/3", terminal)
        task.advance("exp")
        assert "2/3" in wait_for("2/3", terminal)
    assert "building kernels" in terminal.getvalue()


def test_tasks_within_a_task_have_bars_of_their_own(monkeypatch):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.task("compiling"):
        wait_for("compiling", terminal)
        with progress.task("importing the model"):
            assert "importing the model" in wait_for("importing", terminal)


@pytest.mark.parametrize("is_on", [True, False])
def test_short_work_shows_nothing(monkeypatch, is_on):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 3600.0 if is_on else 0.0)
    with config(progress=is_on), progress.work(), progress.task("short"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_a_pipe_gets_no_bars(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.task("in a pipe"):
        time.sleep(0.05)
    assert pipe.getvalue() == ""


def test_time_counts_over_the_tasks_of_one_piece_of_work(monkeypatch):
    """Three stages of half a second are long work, though none of them is."""
    terminal_of(monkeypatch)
    timers = []
    make = progress.threading.Timer
    monkeypatch.setattr(progress.threading, "Timer",
                        lambda left, show: timers.append(left) or make(left, show))
    monkeypatch.setattr(progress, "DELAY", 3600.0)
    with progress.work():
        time.sleep(0.05)
        with progress.task("optimising the graph"), progress.task("within"):
            pass
    with progress.task("alone"):
        pass
    assert len(timers) == 2
    assert timers[0] <= 3600.0 - 0.05 < timers[1]


def test_a_reporter_that_was_set_is_asked(monkeypatch):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    lines = io.StringIO()
    with progress.report_to(progress.LineReporter(lines)), progress.task("long"):
        time.sleep(0.05)
    assert lines.getvalue().startswith("long: ")
    assert terminal.getvalue() == ""
