"""The pool of arenas: no arena serves two calls at once, and memory is bounded."""

from __future__ import annotations

import random
import sys
import threading

import pytest

from weft.runtime.arena import ALIGNMENT, ArenaPool


def run_together(work, count: int) -> None:
    """Run ``work(number)`` on threads that Python switches between as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)


def test_threads_never_share_an_arena() -> None:
    pool = ArenaPool()
    used: set[int] = set()
    shared: list[int] = []

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        for _ in range(20_000):
            arena = pool.take(random_.choice((0, 64, 4096, 10_000)))
            if arena in used:
                shared.append(arena)
            used.add(arena)
            assert arena % ALIGNMENT == 0
            used.discard(arena)
            pool.give_back(arena)

    run_together(work, 6)
    assert not shared
    assert pool.nbytes <= 6 * (10_000 + ALIGNMENT)


def test_memory_is_that_of_the_largest_size_for_each_call_at_a_time() -> None:
    pool = ArenaPool()
    arenas = [pool.take(100) for _ in range(3)]
    for arena in arenas:
        pool.give_back(arena)
    for nbytes in (1000, 10, 5000, 300):
        for arena in [pool.take(nbytes) for _ in range(3)]:
            pool.give_back(arena)
        assert pool.nbytes <= 3 * (5000 + ALIGNMENT)
    # One arena for calls one after the other; those that are too small are freed.
    pool.add(9000)
    assert pool.nbytes == 9000 + ALIGNMENT
    first = pool.take(1)
    assert pool.take(9000) != first


def test_arenas_that_grow_step_by_step_are_seldom_replaced() -> None:
    pool = ArenaPool()
    sizes, arenas = range(4 << 20, 40 << 20, 100_000), set()
    for nbytes in sizes:
        pool.add(nbytes)
        arena = pool.take(nbytes)
        pool.give_back(arena)
        arenas.add(arena)
        assert nbytes <= pool.nbytes <= 1.6 * nbytes
    assert len(arenas) <= 8
    pool.add(100)  # large enough already
    assert pool.take(100) in arenas


def test_a_failed_allocation_loses_nothing() -> None:
    pool = ArenaPool()
    kept = [pool.take(64), pool.take(64)]
    pool.give_back(kept[0])
    with pytest.raises(MemoryError):
        pool.take(1 << 60)
    assert pool.nbytes == 64 + ALIGNMENT  # a free one that was too small is gone
    pool.give_back(kept[1])
    assert pool.take(64) == kept[1]
