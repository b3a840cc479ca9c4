"""Remote sessions: files and modules on a worker, its loss, and addresses without an answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.distributed import RemoteSession, connect
from weft.distributed.executors import Dask
from weft.support.errors import InvalidInputError, OptionError, RunTimeoutError, WorkerError

TEXT = "def @main(%x: Tensor[(n, 4), float32], %y: Tensor[(4,), float32]) { add(%x, %y) }"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Dask]:
    with Dask(workers=2) as executor:
        yield executor


@pytest.fixture(scope="module")
def session(scheduler: Dask) -> Iterator[RemoteSession]:
    with connect(scheduler.client.scheduler.address) as found:
        yield found


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("remote") / "net.weft"
    weft.compile(weft.parse(TEXT)).export(path, check=False)
    return path


def test_a_module_runs_and_is_timed_there(session: RemoteSession, artifact: Path) -> None:
    assert len(session.devices) == 2
    assert session.device is session.devices[0]
    assert session.upload(artifact) == "net.weft"
    assert session.files() == {"net.weft": artifact.stat().st_size}
    assert session.download("net.weft") == artifact.read_bytes()
    module = session.load_module("net.weft")
    assert [spec.name for spec in module.inputs] == ["x", "y"]
    assert len(module.outputs) == 1
    x, y = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(module(x, y=y), x + y)
    times = module.time(x, y, repeat=3, number=2)
    assert len(times.results) == 3
    assert 0 < times.min <= times.median <= times.max
    assert times.min <= times.mean <= times.max
    assert module.time(x, y, repeat=2, min_seconds=0.01).max < 0.01  # many calls each
    with pytest.raises(InvalidInputError, match="1 given"):
        module(x)
    with pytest.raises(OptionError, match="at least 1"):
        module.time(x, y, repeat=0)


def test_files(session: RemoteSession, tmp_path: Path) -> None:
    assert session.upload(b"abc", "text") == "text"
    assert session.download("text") == b"abc"
    session.remove("text")
    with pytest.raises(InvalidInputError, match="no file 'text'"):
        session.download("text")
    with pytest.raises(WorkerError, match="cannot run the module"):
        session.load_module(session.upload(b"no artifact", "wrong.weft"))
    with pytest.raises(OptionError, match="need a name"):
        session.upload(b"abc")
    with pytest.raises(OptionError, match="cannot be read"):
        session.upload(tmp_path / "none")
    for name in ("../up", "a/b", ".."):
        with pytest.raises(InvalidInputError, match="a plain name"):
            session.upload(b"abc", name)


def test_workers_are_chosen_by_name(scheduler: Dask) -> None:
    address = scheduler.client.scheduler.address
    names = [worker.name for worker in scheduler.workers()]
    with connect(address, worker=names[1]) as session:
        assert session.device.name == names[1]
    with pytest.raises(WorkerError, match="no worker 'other'"):
        connect(address, worker="other")


def test_a_lost_worker_is_an_error_within_seconds(scheduler: Dask, artifact: Path) -> None:
    address = scheduler.client.scheduler.address
    with connect(address, timeout=20) as session:
        session.upload(artifact)
        pid = scheduler.client.run(os.getpid, workers=[session.device.address])
        os.kill(pid[session.device.address], signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises((WorkerError, RunTimeoutError), match=r"was lost|took too long"):
            session.load_module("net.weft")
        assert time.monotonic() - start < 30
    with pytest.raises(WorkerError, match="is closed"):
        session.files()


def test_nobody_answers() -> None:
    start = time.monotonic()
    with pytest.raises(WorkerError, match="no scheduler of Dask answers"):
        connect("tcp://127.0.0.1:9", patience=1)
    assert time.monotonic() - start < 10


def test_a_session_of_this_machine() -> None:
    with connect() as session:
        assert len(session.devices) == 1
        assert session.files() == {}
