"""``mod.streams`` and ``mod.submit``: calls in other threads, over one copy of the weights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.runtime.test_threads import status_in_child
from weft.runtime import streams as streams_module
from weft.runtime.devices.cpu import threads
from weft.runtime.launchers import Launcher
from weft.support.errors import InvalidInputError, OptionError

X = np.random.default_rng(0).standard_normal((600, 70)).astype(np.float32)
FIXED = "def @main(%x: Tensor[(600, 70), float32]) { nn.softmax(tanh(%x)) }"
OPEN = FIXED.replace("600", "n")
RECURSIVE = """
def @main(%x: Tensor[(600, 70), float32]) { @more(%x, 2) }
def @more(%x: Tensor[(600, 70), float32], %n: Tensor[(), int32])
    -> Tensor[(600, 70), float32] {
  if (less(%n, 1)) { nn.softmax(%x) } else { tanh(@more(tanh(%x), subtract(%n, 1))) }
}"""
SUM = """
def @main(%x: Tensor[(4), float32], %sum: Tensor[(4), float32]) {
  %new = add(multiply(%sum, 2.0), %x);
  (%new, %new)
}"""
needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot pin")


@pytest.fixture(scope="module")
def fixed() -> weft.Executable:
    return weft.compile(weft.parse(FIXED))


class Gate:
    """Holds the calls of a module until it is opened."""

    def __init__(self, module: weft.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        launch_for = module.launch_for

        def wait(values: object) -> object:
            self.entered.release()
            assert self.open.wait(30)
            return launch_for(values)

        monkeypatch.setattr(module, "launch_for", wait)


@pytest.mark.parametrize("text", [FIXED, OPEN, RECURSIVE], ids=["fixed", "open", "recursive"])
@pytest.mark.parametrize(("count", "of_each"), [(2, 1), (1, 2), (2, 2)])
def test_results_have_the_bits_of_a_call(text: str, count: int, of_each: int) -> None:
    module = weft.compile(weft.parse(text))
    inputs = [X + np.float32(i) for i in range(12)]
    with module.streams(count, threads=of_each) as streams:
        for x, y in zip(inputs, streams.map(inputs), strict=True):
            np.testing.assert_array_equal(y, module(x))
        out = np.empty_like(X)
        assert streams.submit(x=X, out=out).result() is out
        np.testing.assert_array_equal(out, module(X))


def test_submit_runs_calls_in_order_on_the_module_itself() -> None:
    module = weft.compile(weft.parse(SUM), state={"output1": "sum"})
    futures = [module.submit(np.full(4, i, np.float32)) for i in range(6)]
    last = np.zeros(4, np.float32)
    for i, future in enumerate(futures):
        last = last * 2 + i
        np.testing.assert_array_equal(future.result(), last)
    np.testing.assert_array_equal(module.state["sum"], last)
    with pytest.raises(OptionError, match="a module with state has one stream"):
        module.streams(2)
    with module.streams(1, threads=2) as stream:  # code of its own, the same state
        np.testing.assert_array_equal(stream.submit(last).result(), last * 3)


def test_streams_share_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    x = weft.ir.Var("x", weft.ir.TensorType((4, 256), weft.ir.DType.of(weight.dtype)))
    call = weft.op.nn.dense(weft.op.nn.dense(x, weft.ir.Constant(weight)),
                            weft.ir.Constant(weight))
    module = weft.compile(weft.ir.IRModule.from_expr(weft.ir.Function((x,), call)))
    made: list[Launcher] = []
    original = Launcher.reopened

    def reopened(self: Launcher, count: int, owner: object) -> Launcher:
        made.append(original(self, count, owner))
        return made[-1]

    monkeypatch.setattr(Launcher, "reopened", reopened)
    gate = Gate(module, monkeypatch)
    rows = np.ones((4, 256), np.float32)
    with module.streams(2, threads=2) as streams:
        futures = [streams.submit(rows) for _ in range(2)]
        for _ in range(2):
            assert gate.entered.acquire(timeout=30)
        gate.open.set()
        np.testing.assert_array_equal(*[future.result() for future in futures])
        assert len(made) == 2
        memories = [one.memory() for one in (module.launcher, *made)]
        assert len({tuple(memory["weights"]) for memory in memories}) == 1
        assert memories[0]["weights"][0][1] >= weight.nbytes
        for name in ("code", "arenas"):
            regions = [region for memory in memories for region in memory[name]]
            assert regions
            assert len(regions) == len(set(regions))


def test_errors_arrive_in_the_future(fixed: weft.Executable) -> None:
    with fixed.streams(2) as streams:
        wrong = [streams.submit(), streams.submit(X[:5]), streams.submit(X, out=X.astype("f8"))]
        for future in wrong:
            assert isinstance(future.exception(30), InvalidInputError)
        np.testing.assert_array_equal(streams.submit(X).result(), fixed(X))


def test_a_full_queue_blocks_and_calls_that_wait_are_cancelled(
        fixed: weft.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(fixed, monkeypatch)
    with fixed.streams(1, max_queue=1) as streams:
        running, waiting = streams.submit(X), streams.submit(X)
        assert gate.entered.acquire(timeout=30)
        more: list[object] = []
        thread = threading.Thread(target=lambda: more.append(streams.submit(X)))
        thread.start()
        thread.join(0.05)
        assert not more
        assert waiting.cancel()
        thread.join(30)
        assert len(more) == 1
        assert not running.cancel()
        gate.open.set()
        np.testing.assert_array_equal(running.result(), more[0].result())


def test_a_callback_may_submit_although_the_queue_is_full(fixed: weft.Executable) -> None:
    with fixed.streams(1, max_queue=0) as streams:
        done = threading.Event()
        chained: list[object] = []

        def submit_two(_: object) -> None:
            chained.extend(streams.submit(X) for _ in range(2))
            done.set()

        streams.submit(X).add_done_callback(submit_two)
        assert done.wait(30)
        for future in chained:
            np.testing.assert_array_equal(future.result(30), fixed(X))


def test_closing(fixed: weft.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    with fixed.streams(2) as streams:
        futures = [streams.submit(X) for _ in range(5)]
    assert all(future.done() for future in futures)
    with pytest.raises(InvalidInputError, match="the streams are closed"):
        streams.submit(X)
    streams.close()
    gate = Gate(fixed, monkeypatch)

    def fail() -> None:
        with fixed.streams(1) as streams:
            futures[:] = [streams.submit(X) for _ in range(2)]
            assert gate.entered.acquire(timeout=30)
            threading.Timer(0.05, gate.open.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert futures[0].exception() is None
    with pytest.raises(CancelledError):
        futures[1].result()


def test_map_reads_as_far_ahead_as_calls_may_wait(fixed: weft.Executable) -> None:
    read: list[int] = []
    with fixed.streams(1, max_queue=1) as streams:
        results = streams.map(read.append(i) or X for i in range(9))
        next(results)
        assert read == [0, 1, 2]
        assert len(list(results)) == 8


def thread_ids() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


@needs_affinity
def test_streams_and_their_threads_run_on_their_cpus(
        fixed: weft.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    sets = [{cpus[0]}, {cpus[-1]}]
    gate, before = Gate(fixed, monkeypatch), thread_ids()
    with fixed.streams(cpus=sets, threads=2) as streams:
        assert (streams.count, streams.threads) == (2, 2)
        futures = [streams.submit(X) for _ in range(2)]
        for _ in futures:
            assert gate.entered.acquire(timeout=30)
        gate.open.set()
        for future in futures:
            future.result()
        found = [os.sched_getaffinity(number) for number in thread_ids() - before]
        assert len(found) == 4
        assert [found.count(one) for one in sets] == [4 // len(cpus[:2])] * 2
    assert os.sched_getaffinity(0) == set(cpus)


def test_pools_are_reused_by_later_streams(fixed: weft.Executable) -> None:
    pools = threads._process.own_pools
    counts = []
    for _ in range(3):
        with fixed.streams(2, threads=3) as streams:
            for y in streams.map([X] * 4):
                np.testing.assert_array_equal(y, fixed(X))
        counts.append(len(pools))
    assert counts[1:] == counts[:1] * 2
    assert not streams_module._owners


@pytest.mark.parametrize(("options", "message"), [
    ({"count": 0}, "invalid number of streams"), ({"count": True}, "invalid number of streams"),
    ({"threads": 0}, "invalid number of threads"), ({"max_queue": -1}, "invalid max_queue"),
    ({"cpus": set()}, "invalid CPU sets"), ({"cpus": [0]}, "invalid CPU sets"),
    ({"cpus": {100_000}}, "invalid CPU sets"),
    ({"cpus": [{0}, {0}], "count": 3}, "invalid CPU sets"),
], ids=str)
def test_options_that_do_not_fit(
        fixed: weft.Executable, options: dict[str, object], message: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    with pytest.raises(OptionError, match=message):
        fixed.streams(**options)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_starts_streams_anew(fixed: weft.Executable) -> None:
    expected = fixed(X)
    with fixed.streams(2, threads=2, max_queue=0) as streams:
        for _ in range(3):
            streams.submit(X).result()
        fixed.submit(X).result()

        def work() -> bool:
            futures = [fixed.submit(X), *[streams.submit(X) for _ in range(4)]]
            return all(np.array_equal(one.result(20), expected) for one in futures)

        assert status_in_child(work) == 0
        np.testing.assert_array_equal(streams.submit(X).result(), expected)


READ_SMAPS = """
import sys
import numpy as np
import weft
module = weft.load(sys.argv[1])
with module.streams(2, threads=1) as streams:
    for _ in streams.map([np.ones((4, 1024), np.float32)] * 4):
        pass
print("ready", flush=True)
sys.stdin.readline()
print(open("/proc/self/smaps").read(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/self/smaps")
def test_processes_share_the_weights_of_an_artifact(tmp_path: Path) -> None:
    weight = np.random.default_rng(2).standard_normal((1024, 1024)).astype(np.float32)
    x = weft.ir.Var("x", weft.ir.TensorType((4, 1024), weft.ir.DType.of(weight.dtype)))
    call = weft.op.nn.dense(x, weft.ir.Constant(weight))
    path = tmp_path / "m.weft"
    weft.compile(weft.ir.IRModule.from_expr(weft.ir.Function((x,), call))).export(
        path, check=False, portable=False)
    children = [subprocess.Popen([sys.executable, "-c", READ_SMAPS, str(path)], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                for _ in range(2)]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        out = [ask(child) for child in children]
    finally:
        for child in children:
            child.stdin.close()
            child.stdout.close()
            child.wait(60)
    for text in out:
        resident, proportional = kilobytes(text, path)
        assert resident >= weight.nbytes // 1024
        assert proportional <= 0.6 * resident


def ask(child: subprocess.Popen[str]) -> str:
    """The smaps of a child, which stays alive: the next child still shares its pages."""
    child.stdin.write("\n")
    child.stdin.flush()
    lines = []
    while (line := child.stdout.readline()).strip():
        lines.append(line)
    return "".join(lines)


def kilobytes(smaps: str, path: Path) -> tuple[int, int]:
    """Rss and Pss of all mappings of a file, in KB."""
    totals = {"Rss": 0, "Pss": 0}
    is_file = False
    for line in smaps.splitlines():
        name, _, rest = line.partition(":")
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_file = line.endswith(str(path))
        elif is_file and name in totals:
            totals[name] += int(rest.split()[0])
    return totals["Rss"], totals["Pss"]
