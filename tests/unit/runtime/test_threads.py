"""Thread counts, and the OpenMP runtime."""

from __future__ import annotations

import os
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


def test_the_pool_is_kept_once_given() -> None:
    """A loop of another Python thread may be running when serial code is asked for."""
    mod = module()
    calls: list[tuple] = []
    set_num_threads(3)
    mod(sample())
    mod._threading._set = lambda *a: calls.append(a)
    for count in (1, 4, 1):
        mod._threading.apply(count)
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
