"""Traces, progress and the debug ladder."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.support import trace
from weft.support.config import config
from weft.support.log import Level, debug, enabled
from weft.support.progress import BarReporter, LineReporter, report_to, reporter_for, task


def test_spans_are_written_as_chrome_trace(tmp_path):
    path = tmp_path / "t.json"
    with config(trace=path):
        with trace.span("outer", kind="demo"), trace.span("inner"):
            pass
        trace.save_all()
    events = json.loads(path.read_text())["traceEvents"]
    by_name = {e["name"]: e for e in events}
    assert set(by_name) == {"outer", "inner"}
    assert by_name["outer"]["args"] == {"kind": "demo"}
    assert by_name["outer"]["ts"] <= by_name["inner"]["ts"]
    assert by_name["outer"]["dur"] >= by_name["inner"]["dur"]


def test_a_span_is_recorded_when_the_block_raises(tmp_path):
    with config(trace=tmp_path / "t.json"):
        with pytest.raises(ValueError, match="inside"), trace.span("fails"):
            raise ValueError("inside")
        assert [e["name"] for e in trace.recorder().events] == ["fails"]


def test_without_a_trace_file_nothing_is_recorded():
    with config(trace=None):
        assert trace.recorder() is None


def test_lines_go_to_a_pipe_and_bars_to_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(reporter_for(io.StringIO()), LineReporter)
    assert isinstance(reporter_for(Terminal()), BarReporter)


@pytest.mark.parametrize("reporter", [LineReporter, BarReporter])
def test_a_reporter_names_the_task(reporter):
    stream = io.StringIO()
    with report_to(reporter(stream)), task("building kernels", 2) as work:
        work.advance("conv")
        work.advance("relu")
        with task("inner"):
            pass
    assert "building kernels" in stream.getvalue()


def test_progress_is_silent_by_default(capsys):
    with task("quiet", 1) as work:
        work.advance()
    assert capsys.readouterr() == ("", "")


def test_the_ladder_shows_a_rung_and_all_below(capsys):
    with config(debug=3):
        assert enabled(Level.CACHE)
        assert not enabled(Level.LLVM)
        debug(Level.CHOICES, "strategy", "picked one")
        debug(Level.PASSES, "ir", "hidden")
    assert capsys.readouterr().err == "[weft.strategy] picked one\n"


def test_a_trace_that_cannot_be_written_is_one_line(monkeypatch, caplog):
    monkeypatch.setattr(trace, "_recorders", {Path("/proc/no/such/folder/t"): trace.Recorder()})
    trace.save_all()
    assert "cannot write the trace" in caplog.text


def test_warnings_reach_programs_that_set_up_no_logging():
    code = "from weft.support.log import logger; logger('cache').warning('nothing is kept')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "nothing is kept\n"
