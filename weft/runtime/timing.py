"""Rates of machine code that loops a given number of times, on several threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

Loop = Callable[[int], object]


def best_rate(loops: Sequence[Loop], seconds: float, rounds: int) -> float:
    """Iterations per second of all ``loops`` together, each on a thread of its own.

    Each round takes about ``seconds``; the best counts, because other programs disturb some. A loop
    has to release Python's lock.
    """
    iterations = _calibrate(loops[0], seconds)
    return max(_rate(loops, iterations) for _ in range(rounds))


def _calibrate(loop: Loop, seconds: float) -> int:
    """Iterations that take about ``seconds``."""
    iterations = 1
    while (taken := _timed(loop, iterations)) < seconds / 4:
        iterations *= 2
    return max(1, int(iterations * seconds / taken))


def _timed(loop: Loop, iterations: int) -> float:
    start = time.perf_counter()
    loop(iterations)
    return time.perf_counter() - start


def _rate(loops: Sequence[Loop], iterations: int) -> float:
    if len(loops) == 1:
        return iterations / _timed(loops[0], iterations)
    barrier = threading.Barrier(len(loops))
    seconds: list[float] = []

    def work(loop: Loop) -> None:
        barrier.wait()
        seconds.append(_timed(loop, iterations))

    workers = [threading.Thread(target=work, args=(loop,)) for loop in loops]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(iterations / taken for taken in seconds)
