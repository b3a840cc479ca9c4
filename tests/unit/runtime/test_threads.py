"""Thread counts, and the OpenMP runtime."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.runtime.programs import expected, module, sample
from weft.runtime import num_threads, set_num_threads, threads
from weft.runtime.cpu import usable_cpus
from weft.support.config import config
from weft.support.errors import OptionError


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


def test_entry_points_are_kept_once_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of another Python thread may be running when serial code is asked for."""
    calls: list[tuple] = []
    monkeypatch.setattr(threads, "find_openmp", lambda: threads.OpenMP("lib", 11, 12, 13))
    monkeypatch.setattr(threads, "_process", threads._Process())
    for count in (1, 4, 1):
        threads.configure(lambda *a: calls.append(a), count)
    assert calls == [(None, None, None, 1), (11, 12, 13, 4), (11, 12, 13, 1)]


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


def test_serial_where_there_is_no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_candidates", lambda: iter(["no-such-library.so"]))
    threads.find_openmp.cache_clear()
    try:
        assert threads.find_openmp() is None
        set_num_threads(4)
        np.testing.assert_array_equal(module()(sample()), expected(sample()))
    finally:
        threads.find_openmp.cache_clear()


def test_packaged_runtimes_are_candidates(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    packaged = tmp_path / "site-packages" / "torch" / "lib" / "libgomp-1234.so.1"
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    found = list(threads._candidates())
    assert found[0] == "libgomp.so.1"
    assert str(packaged) in found


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_serially() -> None:
    """The pool's threads are not in the child; waiting for them would hang."""
    set_num_threads(2)
    mod, x = module(), sample()
    mod(x)
    child = os.fork()
    if child == 0:
        good = num_threads() == 1 and np.array_equal(mod(x), expected(x))
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert num_threads() == 2
