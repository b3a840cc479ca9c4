"""Runs with a time limit, runs that are cancelled, traces of runs, and functions of tensors."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import weft
from weft import CancellationToken, RunControl
from weft.support.errors import (
    InvalidInputError,
    OptionError,
    RunCancelledError,
    RunTimeoutError,
)

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
PROGRAM = """def @main(%x: Tensor[(2, 3), float32], %s: Tensor[(2, 3), float32]) {
  let %a = annotation.stop_fusion(add(%s, %x));
  let %b = annotation.stop_fusion(nn.softmax(%a));
  let %c = annotation.stop_fusion(multiply(%b, 2f));
  (add(%c, %a), %a)
}"""


class AfterChecks(RunControl):
    """A control that cancels at its check number ``count``."""

    def __init__(self, count: int) -> None:
        self.token = CancellationToken()
        self.count = count
        super().__init__(cancel=self.token)

    def check(self) -> None:
        self.count -= 1
        if self.count < 0:
            self.token.cancel("enough")
        super().check()


def with_state(**options: object) -> weft.Executable:
    return weft.compile(weft.parse(PROGRAM), state={"output1": "s"}, **options)  # type: ignore[arg-type]


ON_DEVICES = {"devices": [weft.SimDevice(0), weft.SimDevice(1)], "placement": {"b": "sim:1"}}


@pytest.mark.parametrize("options", [{}, ON_DEVICES], ids=["main", "lanes"])
def test_runs_with_limits_give_the_same_bytes(options: dict) -> None:
    plain, limited = with_state(**options), with_state(**options)
    for _ in range(3):
        expected = plain.run(None, {"x": X})
        found = limited.run(None, {"x": X}, RunControl(timeout=60, cancel=CancellationToken(),
                                                      is_traced=True))
        np.testing.assert_array_equal(found[0], expected[0])


def test_a_cancelled_run_leaves_the_state_as_it_was() -> None:
    mod = with_state()
    mod.run(None, {"x": X})
    before = mod.state["s"].copy()  # type: ignore[attr-defined]
    for count in range(20):
        try:
            mod.run(None, {"x": X}, AfterChecks(count))
        except RunCancelledError as error:
            assert error.got == "enough"  # noqa: PT017 - the last run of the loop succeeds
            np.testing.assert_array_equal(mod.state["s"], before)  # type: ignore[attr-defined]
        else:
            break
    assert count > 2, "the run was never cancelled between kernels"
    np.testing.assert_allclose(mod.state["s"], before + X)  # type: ignore[attr-defined]


def test_a_cancelled_token_stops_runs_before_their_first_kernel() -> None:
    mod = with_state()
    token = CancellationToken()
    token.cancel("closed")
    with pytest.raises(RunCancelledError, match="closed"):
        mod.run(None, {"x": X}, RunControl(cancel=token))
    assert not mod.state["s"].any()  # type: ignore[attr-defined]


def slow_program(**options: object) -> weft.Executable:
    """About 100,000 iterations of a loop: longer than the tests wait."""
    return weft.compile(weft.parse("""
        def @loop(%i: int32, %x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
          if (less(%i, 2000000)) { @loop(add(%i, 1), nn.softmax(%x)) } else { %x } }
        def @main(%x: Tensor[(2, 3), float32]) { @loop(0, %x) }"""), **options)  # type: ignore[arg-type]


def test_timeouts_end_runs_and_leave_the_module_usable() -> None:
    mod = slow_program()
    start = time.perf_counter()
    with pytest.raises(RunTimeoutError, match=r"at most 0\.2 s"):
        mod.run(None, {"x": X}, RunControl(timeout=0.2))
    assert time.perf_counter() - start < 5
    with pytest.raises(OptionError, match="timeout"):
        RunControl(timeout=0)


def test_another_thread_cancels() -> None:
    mod = slow_program()
    token = CancellationToken()
    threading.Timer(0.1, token.cancel).start()
    with pytest.raises(RunCancelledError):
        mod.run(None, {"x": X}, RunControl(cancel=token))


def test_runs_on_devices_time_out_during_a_slow_copy() -> None:
    slow = [weft.SimDevice(0, latency=30.0), weft.SimDevice(1, latency=30.0)]
    mod = weft.compile(weft.parse(PROGRAM), devices=slow, placement={"b": "sim:1"})
    start = time.perf_counter()
    with pytest.raises(RunTimeoutError):
        mod.run(None, {"x": X, "s": X}, RunControl(timeout=0.2))
    assert time.perf_counter() - start < 10


def test_the_machine_for_programs_with_recursion_can_be_stopped() -> None:
    mod = weft.compile(weft.parse("""
        def @grow(%x: Tensor[(1), float32]) -> Tensor[(1), float32] {
          if (less(sum(%x), -1f)) { %x } else { add(@grow(tanh(%x)), 1f) } }
        def @main(%x: Tensor[(1), float32]) { @grow(%x) }"""))
    with pytest.raises(RunCancelledError):
        mod.run(None, {"x": np.ones(1, np.float32)}, AfterChecks(5_000))


def test_tokens_have_children_and_callbacks() -> None:
    parent = CancellationToken()
    child, other = parent.child(), parent.child()
    calls: list[str] = []
    forget = child.when_cancelled(lambda: calls.append("forgotten"))
    forget()
    child.when_cancelled(lambda: calls.append("child"))
    other.cancel("alone")
    assert not parent.is_cancelled
    parent.cancel("all")
    parent.cancel("again")
    assert calls == ["child"]
    assert (child.reason, other.reason) == ("all", "alone")
    child.when_cancelled(lambda: calls.append("late"))
    assert calls == ["child", "late"]


def test_traces_have_a_lane_for_each_device(tmp_path: Path) -> None:
    mod = weft.compile(weft.parse(PROGRAM), devices=[weft.SimDevice(0), weft.SimDevice(1)],
                       placement={"a": "sim:0", "b": "sim:1"})
    control = RunControl(is_traced=True)
    mod.run(None, {"x": X, "s": X}, control)
    trace = control.step_trace()
    assert {"sim:0", "sim:1"} <= {lane.split(" ")[0] for lane in trace.lanes}
    assert all(step.start >= 0 and step.seconds > 0 for step in trace.steps)
    assert [step.start for step in trace.steps] == sorted(step.start for step in trace.steps)
    trace.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == set(trace.lanes)
    assert sum(e["ph"] == "X" for e in events) == len(trace.steps)
    trace.html(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text()
    assert page.count("<rect") == len(trace.steps)
    assert "src=" not in page
    assert "href=" not in page


def test_callables_take_and_give_any_tensors() -> None:
    mod = weft.compile(weft.parse(PROGRAM))
    whole = mod.callable()
    np.testing.assert_array_equal(whole(X, X)[1], X + X)
    part = mod.callable(["c"], ["a"])
    assert part.inputs == ("a",)
    np.testing.assert_allclose(part(X)[0], mod.run(["c"], {"a": X})[0])
    with pytest.raises(InvalidInputError, match="wrong number of arguments"):
        part(X, X)
    with pytest.raises(InvalidInputError, match="no tensor 'cc'"):
        mod.callable(["cc"])


class Counters(RuleBasedStateMachine):
    """Runs, cancelled runs and parallel runs of a module with state, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.mod = MODULE
        self.mod.state.reset()  # type: ignore[attr-defined]
        self.sum = np.zeros((2, 3), np.float32)

    @rule(scale=st.integers(-2, 2))
    def run(self, scale: int) -> None:
        self.mod.run(None, {"x": X * scale})
        self.sum += X * scale

    @rule(scale=st.integers(-2, 2), checks=st.integers(0, 9))
    def cancelled(self, scale: int, checks: int) -> None:
        try:
            self.mod.run(None, {"x": X * scale}, AfterChecks(checks))
        except RunCancelledError:
            return
        self.sum += X * scale

    @rule(count=st.integers(2, 4), stop=st.integers(0, 3))
    def threads(self, count: int, stop: int) -> None:
        done: list[int] = []

        def work(number: int) -> None:
            token = CancellationToken()
            if number == stop:
                token.cancel()
            try:
                self.mod.run(None, {"x": X}, RunControl(cancel=token))
            except RunCancelledError:
                return
            done.append(number)

        workers = [threading.Thread(target=work, args=(n,)) for n in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert stop not in done
        assert len(done) == count - (stop < count)
        for _ in done:
            self.sum += X

    @invariant()
    def state_is_the_sum(self) -> None:
        np.testing.assert_allclose(self.mod.state["s"], self.sum, atol=1e-4)  # type: ignore[attr-defined]


MODULE: weft.Executable


def test_random_sequences_of_runs() -> None:
    global MODULE  # noqa: PLW0603 - hypothesis makes the machine without arguments
    MODULE = with_state()
    run_state_machine_as_test(Counters, settings=settings(
        max_examples=15, stateful_step_count=12, deadline=None))
