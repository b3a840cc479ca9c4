"""The executor of Dask: workers are killed, a scheduler is absent, versions differ."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import weft
from tests.scale import calls, tuned
from weft.distributed.executors import (
    MEASURE,
    Call,
    Dask,
    Processes,
    Shared,
    open_executor,
)
from weft.support.errors import OptionError, RunTimeoutError, WorkerError


@pytest.fixture(scope="module")
def dask() -> Iterator[Dask]:
    with Dask(workers=2) as executor:
        yield executor


def test_results_errors_and_workers(dask: Dask) -> None:
    futures = [dask.submit(calls.square, x) for x in range(8)]
    assert sorted(f.result() for f in dask.as_completed(futures, 60)) == [x * x for x in range(8)]
    with pytest.raises(ValueError, match="told to"):
        dask.submit(calls.fail, text="told to").result(60)
    assert dask.submit(lambda: 3).result(60) == 3  # Dask sends code, too
    here, = Processes(1).workers()
    for worker in dask.workers():
        assert (worker.cpu, worker.features, worker.weft) == (here.cpu, here.features, here.weft)
        assert worker.resources == {MEASURE: 1}
        process = dask.run(Call(calls.process, worker=worker.name)).result(60)
        assert process != os.getpid()
    with pytest.raises(WorkerError, match="no worker 'other'"):
        dask.run(Call(calls.square, (3,), worker="other"))
    with pytest.raises(WorkerError, match="no worker has the resources"):
        dask.run(Call(calls.square, (3,), resources={MEASURE: 2}))


def test_killed_workers_are_replaced_and_calls_run_again(dask: Dask, tmp_path) -> None:
    before = {dask.run(Call(calls.process, worker=w.name)).result(60) for w in dask.workers()}
    futures = [dask.submit(calls.die_once, tmp_path / f"mark{x % 2}", x) for x in range(12)]
    assert [f.result(60) for f in futures] == list(range(12))
    futures = [dask.submit(calls.process) for _ in range(4)]
    assert {f.result(60) for f in futures} - before


def test_a_timeout_and_a_crash_spare_the_worker(dask: Dask) -> None:
    start = time.monotonic()
    late = dask.run(Call(calls.after, (60, None), timeout=0.3, resources={MEASURE: 1}))
    lost = dask.run(Call(calls.die, timeout=60, label="candidate 3"))
    with pytest.raises(RunTimeoutError):
        late.result(60)
    with pytest.raises(WorkerError, match="ended during the call candidate 3"):
        lost.result(60)
    assert time.monotonic() - start < 30


def test_shared_values_reach_workers_that_come_later(dask: Dask, tmp_path) -> None:
    value = Shared.of({"weights": b"x" * 100})
    for timeout in (None, 60):
        got = [dask.run(Call(calls.size_of, (value, "weights"), timeout=timeout)) for _ in range(4)]
        assert [f.result(60) for f in got] == [100] * 4
    program = Shared.of(weft.parse("def @main(%x: Tensor[(2,), float32]) { nn.softmax(%x) }"))
    for timeout in (None, 60):  # operators pickle by name, and the function imports them
        call = Call(tuned.text_of, (program,), timeout=timeout)
        assert "nn.softmax" in dask.run(call).result(60)
    for number in range(2):
        dask.submit(calls.die_once, tmp_path / str(number), None).result(60)
    assert dask.run(Call(calls.size_of, (value, "weights"))).result(60) == 100


def test_a_call_that_ends_every_worker() -> None:
    with Dask(workers=1, allowed_failures=0) as executor:
        with pytest.raises(WorkerError, match="every worker that ran the call batch 5 ended"):
            executor.run(Call(calls.die, label="batch 5")).result(60)
        with open_executor(executor.client.scheduler.address) as other:
            assert other.submit(calls.square, 5).result(60) == 25
        version_differs(executor.client.scheduler.address)


def test_workers_that_others_started() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address,
                   "--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", "other"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
            try:
                with Dask(cluster.scheduler_address, patience=60) as executor:
                    worker, = executor.workers()
                    assert (worker.name, worker.threads) == ("other", 1)
                    alone = Call(calls.process, resources={MEASURE: 1})
                    assert executor.run(alone).result(60) == one.pid
                    named = Call(calls.process, resources={MEASURE: 1}, worker="other", timeout=60)
                    assert executor.run(named).result(60) != one.pid
            finally:
                one.kill()
        with pytest.raises(WorkerError, match="has no workers"):
            no_workers(cluster.scheduler_address)


def no_workers(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # Dask notices the end of a worker soon
        Dask(address, patience=1).shutdown()


def version_differs(address: str) -> None:
    program = ("import weft, sys; weft.__version__ = '0.0.0'; "
               "from distributed.cli.dask_worker import main; "
               f"main([{address!r}, '--no-nanny', '--no-dashboard', '--name', 'old'])")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as worker:
        try:
            with pytest.raises(WorkerError, match="workers have another version") as caught:
                connect_until_refused(address)
            assert caught.value.expected == weft.__version__
            assert ": 0.0.0" in str(caught.value.got)
        finally:
            worker.kill()


def connect_until_refused(address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        Dask(address).shutdown()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "127.0.0.1:9"])
def test_nobody_answers(address: str) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerError, match="no scheduler of Dask answers") as caught:
        Dask(address, patience=1)
    assert time.monotonic() - start < 10
    assert "dask scheduler" in (caught.value.help or "")


def test_options_that_contradict() -> None:
    with pytest.raises(OptionError, match="without an address"):
        Dask("tcp://127.0.0.1:9", workers=3)
    with pytest.raises(OptionError, match="needs a worker"):
        Dask(workers=0)
