"""Loops on the thread pool: every iteration runs once, and the join skips absent workers."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.programs import host
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary
from weft.runtime.devices.cpu.thread_pool import PoolField, ThreadPool
from weft.runtime.devices.cpu.threads import Threading
from weft.runtime.library import function

BODY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
PATIENCE = 30  # seconds, after which a test fails that would hang


@functools.cache
def library() -> ObjectLibrary:
    return ObjectLibrary([build_runtime_support(host()).object])


def launch(body: Callable[[int, int], None], extent: int, count: int) -> None:
    """Run a loop whose body is Python code on ``count`` threads."""
    failures: list[BaseException] = []

    def guarded(begin: int, end: int, _: object) -> None:
        try:
            body(begin, end)
        except BaseException as error:  # noqa: BLE001 - it must not pass through machine code
            failures.append(error)

    setting = Threading(library())
    setting.apply(count)
    start = function(library(), "weft_parallel_launch", None, BODY, ctypes.c_void_p,
                     ctypes.c_int64)
    start(BODY(guarded), None, extent)
    if failures:
        raise failures[0]


def loops_served() -> int:
    gate = threads._process.pools[0].address + PoolField.GATE
    return ctypes.c_uint64.from_address(gate).value >> 32


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("extent", [-1, 0, 1, 2, 3, 7, 16, 17, 1000])
def test_every_iteration_runs_once(extent: int, count: int) -> None:
    found: Counter[int] = Counter()
    lock = threading.Lock()

    def body(begin: int, end: int) -> None:
        assert begin < end
        with lock:
            found.update(range(begin, end))

    launch(body, extent, count)
    assert found == Counter(range(max(extent, 0)))


def test_chunks_are_parts_of_shares() -> None:
    spans: list[tuple[int, int]] = []
    launch(lambda *span: spans.append(span), 100, 2)
    assert max(end - begin for begin, end in spans) == 6
    assert not [span for span in spans if span[0] < 50 < span[1]]


def test_one_iteration_opens_no_gate() -> None:
    launch(lambda *_: None, 2, 2)
    before = loops_served()
    launch(lambda *_: None, 1, 2)
    assert loops_served() == before
    launch(lambda *_: None, 2, 2)
    assert loops_served() == before + 1


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_workers_come_awake_or_asleep(pause: float) -> None:
    """The caller waits in its first chunk until another thread has run one."""
    time.sleep(pause)
    came = threading.Event()
    caller = threading.get_ident()

    def body(*_: int) -> None:
        if threading.get_ident() == caller:
            assert came.wait(PATIENCE)
        came.set()

    launch(body, 16, 2)
    assert came.is_set()


def test_a_thread_that_is_held_up_leaves_its_share_to_others() -> None:
    """The worker's first chunk lasts until all others are done: the caller has to do them."""
    caller = threading.get_ident()
    chunks: Counter[bool] = Counter()
    came, rest = threading.Event(), threading.Event()

    def body(*_: int) -> None:
        mine = threading.get_ident() == caller
        chunks[mine] += 1
        if not mine:
            came.set()
            assert rest.wait(PATIENCE)
        else:
            assert came.wait(PATIENCE)
            if chunks[True] == 15:
                rest.set()

    launch(body, 16, 2)
    assert chunks == {True: 15, False: 1}


def test_a_loop_that_finds_all_pools_at_work_runs_where_it_is() -> None:
    chunks: list[int] = []

    def occupy(pools: int) -> None:
        if not pools:
            launch(lambda *_: chunks.append(threading.get_ident()), 64, 2)
            return
        launch(lambda begin, _: occupy(pools - 1) if begin == 0 else None, 2, 2)

    launch(lambda *_: None, 2, 2)
    occupy(len(threads._process.pools))
    assert len(chunks) == 1


def test_loops_at_once_have_pools_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the CPUs can keep busy: here a loop within a loop has a worker, too."""
    monkeypatch.setattr(threads, "usable_cpus", lambda: 4)
    caller = threading.get_ident()
    came = threading.Event()

    def inner(*_: int) -> None:
        if threading.get_ident() == caller:
            assert came.wait(PATIENCE)
        came.set()

    launch(lambda begin, _: launch(inner, 16, 2) if begin == 0 else None, 2, 2)
    assert came.is_set()
    assert len(threads._process.pools) >= 2


def test_many_short_loops() -> None:
    done = Counter[int]()
    lock = threading.Lock()

    def body(begin: int, end: int) -> None:
        with lock:
            done[0] += end - begin

    for _ in range(300):
        launch(body, 9, 4)
    assert done[0] == 2700


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_workers_keep_off_the_cpu_of_the_thread_that_made_them() -> None:
    launch(lambda *_: None, 2, 2)
    mine = os.sched_getaffinity(0)
    sets = [os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir()]
    assert [other for other in sets if other < mine and len(other) == len(mine) - 1]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The number of a thread that alone serves the loops of the library, and waits as usual."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    pool = ThreadPool(library())
    pool.grow(2)
    setting = Threading(library())
    setting._set(pool.address, 2)
    new = {task.name for task in Path("/proc/self/task").iterdir()} - before
    assert len(new) == 1
    yield new.pop()
    setting.forget()


def cpu_ns(task: str) -> int:
    """How long a thread has had a CPU."""
    return int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0])


NEEDS_SCHEDSTAT = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(),
                                     reason="needs /proc/self/schedstat")


@NEEDS_SCHEDSTAT
def test_an_idle_worker_waits_for_about_a_millisecond_and_then_sleeps(worker: str) -> None:
    start = function(library(), "weft_parallel_launch", None, ctypes.c_void_p, ctypes.c_void_p,
                     ctypes.c_int64)
    labs = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)  # a body that does nothing
    spun = []
    for _ in range(5):
        time.sleep(0.05)
        before = cpu_ns(worker)
        start(labs, None, 2)
        time.sleep(0.05)
        spun.append(cpu_ns(worker) - before)
    assert 1_000_000 < sorted(spun)[2] < 5_000_000, spun
    before = cpu_ns(worker)
    time.sleep(0.3)
    assert cpu_ns(worker) == before


def test_a_process_ends_while_its_threads_wait() -> None:
    code = (
        "import numpy as np, weft\n"
        "from weft.runtime import set_num_threads\n"
        "set_num_threads(4)\n"
        "f = weft.parse('def @main(%x: Tensor[(1000, 1000), float32]) { tanh(%x) }')\n"
        "mod = weft.compile(f)\n"
        "mod(np.ones((1000, 1000), np.float32))\n"
        "del mod\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
