"""Executors of this machine: processes crash, hang and are cancelled, and no other call is lost."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.scale import calls, tuned
from weft.distributed.executors import (
    Call,
    Executor,
    Inline,
    Processes,
    Shared,
    open_executor,
)
from weft.support.errors import OptionError, RunCancelledError, RunTimeoutError, WorkerError


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(2) as executor:
        yield executor


@pytest.mark.parametrize("name", ["inline", "processes:2"])
def test_results_and_errors(name: str) -> None:
    with open_executor(name) as executor:
        futures = [executor.submit(calls.square, x) for x in range(8)]
        assert sorted(f.result() for f in executor.as_completed(futures)) == [
            x * x for x in range(8)]
        with pytest.raises(ValueError, match="told to"):
            executor.submit(calls.fail, text="told to").result(60)
        assert list(executor.map(calls.square, [1, 2, 3])) == [1, 4, 9]
        worker, *_ = executor.workers()
        assert worker.cpu
        assert worker.features
        assert worker.weft
        assert executor.run(Call(calls.square, (3,), worker=worker.name)).result(60) == 9
        with pytest.raises(WorkerError, match="no worker 'other'"):
            executor.run(Call(calls.square, (3,), worker="other"))


def test_results_come_as_they_are_ready(pool: Processes) -> None:
    slow = pool.submit(calls.after, 0.5, "slow")
    quick = [pool.submit(calls.after, 0, number) for number in range(4)]
    assert [f.result() for f in pool.as_completed([slow, *quick])][-1] == "slow"


def test_a_crash_is_an_error_of_one_call(pool: Processes) -> None:
    lost = pool.run(Call(calls.die, label="batch 7"))
    others = [pool.submit(calls.square, x) for x in range(6)]
    assert [f.result(60) for f in others] == [x * x for x in range(6)]
    with pytest.raises(WorkerError, match="ended during the call batch 7") as caught:
        lost.result(60)
    assert caught.value.got == "killed by SIGKILL"


def test_a_lost_call_runs_again(tmp_path: Path) -> None:
    with Processes(1, allowed_failures=1) as executor:
        assert executor.submit(calls.die_once, tmp_path / "once", 5).result(60) == 5
        with pytest.raises(WorkerError):
            executor.submit(calls.die).result(60)


def test_a_timeout_ends_the_worker(pool: Processes) -> None:
    before = {pool.run(Call(calls.process, worker=name)).result(60) for name in "01"}
    start = time.monotonic()
    with pytest.raises(RunTimeoutError, match=r"at most 0\.3 s"):
        pool.run(Call(calls.after, (60, None), timeout=0.3)).result(60)
    assert time.monotonic() - start < 10
    after = {pool.run(Call(calls.process, worker=name)).result(60) for name in "01"}
    ended, = before - after
    with pytest.raises(ProcessLookupError):
        os.kill(ended, 0)


def test_cancelled_calls_end(pool: Processes) -> None:
    running = [pool.submit(calls.after, 60, None) for _ in range(2)]
    waiting = pool.submit(calls.square, 2)
    while not all(f.running() for f in running):
        time.sleep(0.01)
    pool.cancel([waiting, *running])
    for future in running:
        with pytest.raises(RunCancelledError):
            future.result(60)
    assert waiting.cancelled()
    assert pool.submit(calls.square, 4).result(60) == 16


def test_workers_are_pinned_and_have_their_threads() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with Processes(1, threads=1) as executor:
        assert executor.submit(calls.cores).result(60) == {cpus[0]}
        assert executor.submit(calls.threads).result(60) == "1"
        assert executor.workers()[0].cores == (cpus[0],)
    with Processes(1, threads=len(cpus) + 1) as executor:
        assert executor.submit(calls.cores).result(60) == set(cpus)


def test_what_cannot_be_sent_is_named(pool: Processes) -> None:
    with pytest.raises(WorkerError, match="cannot be sent to a process"):
        pool.submit(lambda: None)
    with pytest.raises(WorkerError, match="a result of a call cannot be sent back: function"):
        pool.submit(calls.unsendable).result(60)


def test_shared_values_wait_for_the_module_of_the_function() -> None:
    program = weft.parse("def @main(%x: Tensor[(2, 3), float32]) { nn.softmax(%x) }")
    with Processes(1) as executor:  # operators pickle by name: the function imports their registry
        assert executor.run(Call(tuned.text_of, (Shared.of(program),))).result(60) == str(program)
        broken = Shared("digest", b"no pickle")
        with pytest.raises(pickle.UnpicklingError):
            executor.run(Call(tuned.text_of, (broken,))).result(60)
        assert executor.submit(calls.square, 3).result(60) == 9


def test_shutdown_cancels_what_it_is_told_to() -> None:
    executor = Processes(1)
    futures = [executor.submit(calls.after, 60, None) for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(f.done() for f in futures)
    with pytest.raises(WorkerError, match="shut down"):
        executor.submit(calls.square, 1)


@pytest.mark.parametrize("name", ["process", "processes:x", "inline:2", "", 3])
def test_unknown_executors(name: object) -> None:
    with pytest.raises(OptionError):
        open_executor(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(("workers", "threads"), [(0, 1), (1, 0), (None, 0)])
def test_no_workers_or_threads(workers: int | None, threads: int) -> None:
    with pytest.raises(OptionError, match="needs a worker"):
        Processes(workers, threads=threads)


def test_an_executor_is_taken_as_it_is() -> None:
    executor: Executor = Inline()
    assert open_executor(executor) is executor
