"""Thread counts, and the OpenMP runtime."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime.programs import expected, module, opened, sample
from weft.runtime import Manifest, num_threads, set_num_threads
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cpu.host import usable_cpus
from weft.support.config import config
from weft.support.errors import ArtifactError, OptionError


@pytest.fixture(autouse=True)
def _fresh_counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("WEFT_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    set_num_threads(None)
    yield
    set_num_threads(None)


def test_order_of_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_threads() == usable_cpus()
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    set_num_threads(None)
    assert num_threads() == 5
    monkeypatch.setenv("WEFT_THREADS", "4")
    set_num_threads(None)
    assert num_threads() == 4
    set_num_threads(3)
    assert num_threads() == 3
    with config(threads=2):
        assert num_threads() == 2
    assert num_threads() == 3


@pytest.mark.parametrize("count", [0, -1, 4097, 1.5, "2", True])
def test_counts_that_cannot_be_used(count: object) -> None:
    with pytest.raises(OptionError, match="1 to 4096"):
        set_num_threads(count)


@pytest.mark.parametrize("variable", ["WEFT_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_variables_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    set_num_threads(None)
    with pytest.raises(OptionError, match=variable):
        num_threads()


def test_every_count_gives_the_same_bits() -> None:
    mod, x = module(), sample()
    for count in (1, 2, 3, 7, 1, 4):
        set_num_threads(count)
        np.testing.assert_array_equal(mod(x), expected(x))


def test_the_pool_is_kept_once_given() -> None:
    """A loop of another Python thread may be running when serial code is asked for."""
    mod = module()
    calls: list[tuple] = []
    set_num_threads(3)
    mod(sample())
    mod.launcher.threading._set = lambda *a: calls.append(a)
    for count in (1, 4, 1):
        mod.launcher.threading.apply(count)
    address = threads._process.pools[0].address
    assert calls == [(address, 1), (address, 4), (address, 1)]


def test_counts_may_change_while_others_run() -> None:
    mod, x = module(), sample()
    wrong: list[int] = []

    def work(count: int) -> None:
        with config(threads=count):
            wrong.extend(count for _ in range(200) if not np.array_equal(mod(x), expected(x)))

    workers = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 1, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def status_in_child(work: Callable[[], bool]) -> int:
    """0 where ``work`` gives true in a forked child; a child that hangs is ended after a while."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            signal.alarm(60)
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("count", [2, 3])
def test_a_forked_child_has_threads_of_its_own(count: int) -> None:
    """The pool's threads are not in the child; waiting for them would hang."""
    set_num_threads(count)
    mod, x = module(), sample()
    mod(x)

    def work() -> bool:
        before = system_threads()
        good = num_threads() == count and np.array_equal(mod(x), expected(x))
        same = all(np.array_equal(mod(x), expected(x)) for _ in range(20))
        return good and same and (before, system_threads()) == (1, count)

    def grandchild() -> bool:
        return work() and status_in_child(work) == 0

    assert status_in_child(work) == 0
    assert status_in_child(grandchild) == 0
    assert num_threads() == count
    np.testing.assert_array_equal(mod(x), expected(x))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("policy", ["", "active", "passive"])
def test_loops_are_whole_however_threads_wait(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child starts its threads as the variable says now."""
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    set_num_threads(2)
    mod, x = module(), sample()
    assert status_in_child(lambda: all(np.array_equal(mod(x), expected(x))
                                       for _ in range(100))) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_process_with_loops_at_work() -> None:
    """Whatever the parent's threads were doing: a lock they held does not stop the child."""
    set_num_threads(2)
    mod, x, stop = module(), sample(), threading.Event()

    def loops() -> None:
        while not stop.is_set():
            mod(x)

    def work() -> bool:
        return all(np.array_equal(mod(x), expected(x)) for _ in range(5))

    workers = [threading.Thread(target=loops) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        assert [status_in_child(work) for _ in range(10)] == [0] * 10
        with threads._process.making:
            assert status_in_child(lambda: threads._process.making.acquire(timeout=1)) == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_a_module_has_a_count_of_its_own() -> None:
    """It goes before that of the process, and ``with config`` around a call before it."""
    mod, x = module(), sample()
    own = opened(dataclasses.replace(mod.manifest, threads=2), mod.library,
                 mod.launcher.constants)
    assert (own.threads, mod.threads) == (2, None)
    set_num_threads(3)
    for one, count in ((own, 2), (mod, 3)):
        np.testing.assert_array_equal(one(x), expected(x))
        assert one.launcher.threading._count == count
        assert one.profile(x, repeat=1).num_threads == count
    with config(threads=4):
        np.testing.assert_array_equal(own(x), expected(x))
        assert own.launcher.threading._count == 4
    own(x)
    assert own.launcher.threading._count == 2


@pytest.mark.parametrize("count", [1, 4096])
def test_the_count_of_a_module_is_part_of_its_manifest(count: int) -> None:
    manifest = dataclasses.replace(module().manifest, threads=count)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert "threads" not in module().manifest.to_json()


@pytest.mark.parametrize("count", [0, 4097])
def test_a_manifest_with_a_count_that_cannot_be(count: int) -> None:
    manifest = dataclasses.replace(module().manifest, threads=count)
    with pytest.raises(ArtifactError, match="threads"):
        Manifest.from_json(manifest.to_json())
