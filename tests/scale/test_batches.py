"""Batches on several workers: none lost, none twice, errors name their batch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.scale import calls
from weft.data import DataLoader
from weft.distributed import map_batches
from weft.distributed.executors import Dask, Executor, Inline, Processes, Worker
from weft.support.errors import DataError, OptionError, RunTimeoutError, WorkerError

TEXT = "def @main(%x: Tensor[(n, 4), float32]) { nn.softmax(%x) }"


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(2, allowed_failures=3) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask() -> Iterator[Dask]:
    with Dask(workers=2) as executor:
        yield executor


@pytest.fixture(params=["processes", "dask"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.getfixturevalue("pool" if request.param == "processes" else "dask")


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 4)).astype(np.float32)


@pytest.mark.parametrize("form", ["program", "module", "artifact"])
def test_models_in_every_form(executor: Executor, form: str, tmp_path: Path) -> None:
    module = weft.compile(weft.parse(TEXT))
    module.export(tmp_path / "net.weft", check=False)
    model = {"program": weft.parse(TEXT), "module": module,
             "artifact": str(tmp_path / "net.weft")}[form]
    x = rows(37)
    got = list(map_batches(model, x, batch_size=8, executor=executor))
    assert [len(y) for y in got] == [8, 8, 8, 8, 5]
    assert np.concatenate(got).tobytes() == module(x).tobytes()


@pytest.mark.parametrize("dataset", [{"x": rows(10)}, (rows(10),)], ids=["names", "tuple"])
def test_arrays_in_every_form(dataset: Any) -> None:
    got = list(map_batches(weft.parse(TEXT), dataset, batch_size=4, executor="inline"))
    assert np.concatenate(got).tobytes() == weft.compile(weft.parse(TEXT))(rows(10)).tobytes()


def test_a_loader_yields_batches() -> None:
    loader = DataLoader(list(range(7)), batch_size=3)
    got = list(map_batches(calls.total, loader, executor=Inline()))
    assert got == [3, 12, 6]


def test_killed_workers_lose_no_batch(executor: Executor, tmp_path: Path) -> None:
    log = tmp_path / "log"
    work = partial(calls.work_and_die, tmp_path, log)
    got = list(map_batches(work, range(40), executor=executor))
    assert got == [x * x for x in range(40)]
    assert len(list(tmp_path.glob("died-*"))) == 3
    got = sorted(map_batches(calls.square, range(40), executor=executor).as_completed())
    assert got == [(x, x * x) for x in range(40)]


def test_batches_in_flight_are_bounded(executor: Executor) -> None:
    read = []

    def source() -> Iterator[int]:
        for x in range(30):
            read.append(x)
            yield x

    most = 0
    for taken, _ in enumerate(map_batches(calls.square, source(), executor=executor, in_flight=5)):
        most = max(most, len(read) - taken)
    assert most <= 5
    assert len(read) == 30


@pytest.mark.parametrize("kind", [Processes, Dask])
def test_a_late_batch_gets_a_copy(kind: type[Processes | Dask], tmp_path: Path) -> None:
    with kind(workers=2) as executor:  # of this test: one is busy for a minute
        start = time.monotonic()
        got = list(map_batches(partial(calls.slow_once, tmp_path / "slow"), range(12),
                               executor=executor))
        assert got == list(range(12))
        assert time.monotonic() - start < 40


def test_errors_name_the_batch(executor: Executor) -> None:
    with pytest.raises(ValueError, match="an odd one") as caught:
        list(map_batches(calls.refuse_seven, range(20), executor=executor))
    assert "batch 7" in caught.value.__notes__
    batches = [rows(4), rows(4), np.zeros((4, 5), np.float32), rows(4)]
    with pytest.raises(weft.WeftError, match="batch 2"):
        list(map_batches(weft.parse(TEXT), batches, executor=executor))
    with pytest.raises(RunTimeoutError, match="batch 1"):
        list(map_batches(partial(calls.slow_once, Path(os.devnull) / "x", 1), range(3),
                         executor=executor, timeout=3))
    assert list(map_batches(calls.square, range(3), executor=executor)) == [0, 1, 4]


def test_a_batch_that_ends_every_worker() -> None:
    with pytest.raises(WorkerError, match="batch 0"):
        list(map_batches(calls.die_of, range(3), executor="processes:1", allowed_failures=1))


class Broken:
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise DataError("a sample is missing")
        return index


def test_a_dataset_that_raises() -> None:
    with pytest.raises(DataError, match="while reading batch 2 of the dataset"):
        list(map_batches(calls.total, Broken(), batch_size=2, executor="inline"))


def test_a_worker_without_the_right_cpu(executor: Executor, tmp_path: Path) -> None:
    other = "neoverse-n1" if os.uname().machine == "x86_64" else "x86-64-v3"
    triple = "aarch64-linux-gnu" if os.uname().machine == "x86_64" else "x86_64-linux-gnu"
    module = weft.compile(weft.parse(TEXT), target=f"llvm -mtriple={triple} -mcpu={other}")
    module.export(tmp_path / "other.weft", portable=False, check=False)
    with pytest.raises(WorkerError, match="a worker cannot run the module") as caught:
        list(map_batches(tmp_path / "other.weft", rows(8), batch_size=4, executor=executor))
    assert "batch " in str(caught.value)
    assert "another machine" in str(caught.value)


class OlderWorkers(Inline):
    """One worker like this machine, and one of an older CPU."""

    def workers(self) -> tuple[Worker, ...]:
        here, = super().workers()
        return here, Worker("inline", "", "older", frozenset(), 1, here.python, here.weft)


def test_artifacts_have_code_for_each_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.distributed import worker_module
    from weft.runtime.executors.module_worker import open_module

    older = "llvm -mcpu=x86-64-v2" if os.uname().machine == "x86_64" else "llvm -mcpu=cortex-a72"
    monkeypatch.setattr(worker_module, "_host_target", lambda: str(weft.Target.of(older)))
    executor = OlderWorkers()
    targets = worker_module.targets_of(executor)
    assert len(targets) == 2
    module, folder = open_module(worker_module.artifact_for(weft.parse(TEXT), executor, {}))
    assert str(module.manifest.target.cpu) == weft.Target.of("cpu").cpu
    folder.cleanup()


def test_options_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="needs batch_size"):
        list(map_batches(calls.square, rows(3), executor="inline"))
    with pytest.raises(OptionError, match="in_flight"):
        map_batches(calls.square, [1], in_flight=0)
    with pytest.raises(OptionError, match="not for functions"):
        list(map_batches(calls.square, [1], executor="inline", opt_level=3))
    text = "def @main(%x: float32, %t: float32) { let %n = add(%x, %t); (%n, %n) }"
    module = weft.compile(weft.parse(text), state={"output1": "t"})
    with pytest.raises(OptionError, match="state"):
        list(map_batches(module, [1.0], executor="inline"))


def test_an_early_end_stops_the_workers(pool: Processes) -> None:
    results = iter(map_batches(partial(calls.after, 0.05), range(1000), executor="processes:2"))
    assert next(results) == 0
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_four_workers_beside_one(name: str) -> None:
    """Each batch takes its time without a CPU: what is measured is how well workers are fed."""
    for service in (0.2, 1.0, 3.0):  # of a batch; a busy machine takes its time between two
        seconds = {count: seconds_of(name, count, service) for count in (1, 4)}
        if seconds[1] / seconds[4] >= 3.2:
            break
    print(f"{name}: {seconds[1] / seconds[4]:.2f} times the throughput of one")
    assert seconds[1] / seconds[4] >= 3.2


def seconds_of(name: str, workers: int, service: float) -> float:
    with Processes(workers) if name == "processes" else Dask(workers=workers) as executor:
        list(map_batches(partial(calls.after, 0.0), range(8 * workers), executor=executor))
        start = time.perf_counter()
        list(map_batches(partial(calls.after, service), range(12), executor=executor))
        return time.perf_counter() - start
