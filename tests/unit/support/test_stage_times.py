"""Stages count their own time, on every thread, and what workers report."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context

import pytest

from weft.compiler.report.timing import timing_table
from weft.support.stage_times import IMPORTS, StageTime, StageTimes, collected, collector, stage


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_inner_stages_are_not_counted_twice():
    with collected() as times, stage("outer"):
        burn(0.02)
        with stage("inner"):
            burn(0.04)
    outer, inner = times.stages["outer"], times.stages["inner"]
    assert inner.cpu_seconds >= 0.04 > outer.cpu_seconds >= 0.02
    assert list(times.stages) == ["inner", "outer"]
    assert [row[0] for row in times.rows()] == ["inner", "outer"]


def test_stages_of_other_threads_are_added_and_do_not_shorten_those_of_this_one():
    def work() -> None:
        with stage("thread"):
            burn(0.02)

    with collected() as times, stage("main"):
        thread = threading.Thread(target=copy_context().run, args=(work,))
        thread.start()
        thread.join()
        burn(0.01)
    assert times.stages["thread"].cpu_seconds >= 0.02
    assert times.stages["main"].cpu_seconds >= 0.01
    assert times.stages["main"].seconds >= times.stages["thread"].seconds


def test_nothing_is_collected_by_default():
    with stage("alone"):
        assert collector() is None


def test_modules_are_a_stage_and_loaders_are_as_before(tmp_path, monkeypatch):
    (tmp_path / "plainly_imported.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    from importlib.machinery import SourceFileLoader

    usual = SourceFileLoader.exec_module
    with collected() as times, stage("user"):
        import plainly_imported  # type: ignore[import-not-found]
    assert plainly_imported.value == 3
    assert times.stages[IMPORTS].count == 1
    assert SourceFileLoader.exec_module is usual


def test_errors_end_a_stage():
    with collected() as times, pytest.raises(ValueError, match="x"), stage("fails"):
        raise ValueError("x")
    assert times.stages["fails"].count == 1


def test_time_in_no_stage_is_told():
    with collected() as times:
        with stage("counted"):
            burn(0.02)
        times.merge({"in a worker": StageTime(5.0, 5.0, 1)})
        burn(0.03)
    assert 0.03 <= times.outside() < 1.0
    assert any(line.startswith("in no stage") for line in timing_table(times, 1.0).splitlines())


def test_the_table_sums_up_small_stages(monkeypatch):
    times = StageTimes()
    monkeypatch.setattr(StageTimes, "outside", lambda _: 0.0)
    times.merge({"large": StageTime(2.0, 1.0, 3), "small": StageTime(0.001, 0.001, 1),
                 "smaller": StageTime(0.001, 0.001, 1)})
    lines = timing_table(times, 1.5).splitlines()
    assert lines[1].split() == ["large", "2.000", "1.000", "99.8%", "3"]
    assert lines[2].startswith("2 stages below 0.5% each")
    assert lines[3].split() == ["in", "no", "stage,", "on", "all", "threads", "0.000", "0.0%"]
    assert lines[4].split()[-2:] == ["1.500", "1.002"]
