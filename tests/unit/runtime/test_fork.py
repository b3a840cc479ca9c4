"""Models in forked children: free locks, and memory of their own."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

import weft
from tests.unit.runtime.test_threads import status_in_child
from weft.runtime.arena import ArenaPool

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
]

TEXT = """
def @main(%x: Tensor[(n, 16), float32], %w: Tensor[(16, 16), float32]) {
  nn.softmax(nn.dense(nn.dense(%x, %w), %w), axis=0)
}"""
W = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32)


def expected(n: int) -> np.ndarray:
    y = rows(n) @ W.T @ W.T
    e = np.exp(y - y.max(0, keepdims=True))
    return e / e.sum(0, keepdims=True)


def agrees(model: weft.Executable, n: int) -> bool:
    return np.allclose(model(rows(n), W), expected(n), rtol=1e-4, atol=1e-5)


def held_elsewhere(*locks: threading.Lock) -> tuple[threading.Event, threading.Thread]:
    """A thread that holds the locks until the event is set."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        taken.set()
        done.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    return done, thread


def child_with(locks: list[threading.Lock], work: Callable[[], bool]) -> int:
    """The status of ``work`` in a child forked while another thread holds ``locks``."""
    done, thread = held_elsewhere(*locks)
    try:
        return status_in_child(work)
    finally:
        done.set()
        thread.join()


def test_locks_that_other_threads_hold_are_free_in_a_child() -> None:
    model = weft.compile(weft.parse(TEXT))
    assert model.is_dynamic
    general = model.general
    assert general is not None
    assert agrees(model, 3)
    pool, programs = model.launcher.arenas, model._programs
    locks = [pool._lock, model._launches._lock, programs._table_lock, programs._compile_lock]

    def work() -> bool:
        fixed = model.specialize({"x": (5, 16)})  # compiles under both locks of the model
        return all(agrees(model, n) for n in (3, 7, 900)) and agrees(fixed, 5)

    assert child_with(locks, work) == 0
    assert agrees(model, 8)


def test_bound_calls_and_state_work_in_a_child() -> None:
    model = weft.compile(weft.parse("""
    def @main(%x: Tensor[(4), float32], %sum: Tensor[(4), float32]) {
      %next = add(%x, %sum);
      (tanh(%next), %next)
    }"""), state={"output1": "sum"})
    x = np.ones(4, np.float32)
    model(x)
    run = model.bind(x)

    def work() -> bool:
        run()
        model(x)
        return model.state["sum"].tolist() == [3.0] * 4

    assert child_with([run._lock, model.state.lock], work) == 0
    assert model.state["sum"].tolist() == [1.0] * 4  # the child's memory is its own


def test_a_child_forked_inside_of_take_has_arenas() -> None:
    """Between two steps of ``take`` the list of free arenas may be in another thread's hands."""
    pool = ArenaPool()
    pool.add(100)
    arena = pool.take(100)  # what a call in another thread holds

    def work() -> bool:
        mine = [pool.take(100), pool.take(5000)]
        for each in mine:
            pool.give_back(each)
        return arena not in mine and len(set(mine)) == 2

    assert child_with([pool._lock], work) == 0


def test_children_of_a_process_whose_threads_call_at_new_sizes() -> None:
    model = weft.compile(weft.parse(TEXT))
    stop = threading.Event()

    def calls(first: int) -> None:
        n = first
        while not stop.is_set():
            model(rows(n % 97), W)
            n += 1

    workers = [threading.Thread(target=calls, args=(first,)) for first in (1, 40)]
    for worker in workers:
        worker.start()
    try:
        statuses = [status_in_child(lambda: all(agrees(model, n) for n in (1, 50, 200)))
                    for _ in range(8)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert statuses == [0] * 8
    assert agrees(pickle.loads(pickle.dumps(model)), 4)
