"""Measures the machine's peak rate of fused multiply-adds.

Clock rates change with load and temperature, so a percentage of peak needs a peak that is measured
at the same time.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable

from weft.runtime.library import Library, NativeLibrary, function

_TARGET_SECONDS = 0.01
_ROUNDS = 8  # the best counts: other programs disturb some


def measure_fma_peak(library: Library, num_threads: int = 1) -> float:
    """GFLOP/s of float32 multiply-adds in vector registers, on ``num_threads`` threads together.

    Calls ``weft_fma_peak`` of the library's runtime support for about 0.1 s. ``nan`` for a
    library that is not machine code of this process.
    """
    if not isinstance(library, NativeLibrary):
        return math.nan
    run = function(library, "weft_fma_peak", None, ctypes.c_int64)
    flops = int(function(library, "weft_fma_peak_flops", ctypes.c_int64)())
    iterations = _calibrate(run)
    best = max(_rate(run, iterations, num_threads) for _ in range(_ROUNDS))
    return best * flops * 1e-9


def _calibrate(run: Callable[[int], object]) -> int:
    """Iterations that take about ``_TARGET_SECONDS``."""
    iterations = 1 << 12
    while (seconds := _timed(run, iterations)) < _TARGET_SECONDS / 4:
        iterations *= 2
    return max(1, int(iterations * _TARGET_SECONDS / seconds))


def _timed(run: Callable[[int], object], iterations: int) -> float:
    start = time.perf_counter()
    run(iterations)
    return time.perf_counter() - start


def _rate(run: Callable[[int], object], iterations: int, num_threads: int) -> float:
    """Iterations per second of all threads together."""
    if num_threads == 1:
        return iterations / _timed(run, iterations)
    barrier = threading.Barrier(num_threads)
    seconds: list[float] = []

    def work() -> None:
        barrier.wait()
        seconds.append(_timed(run, iterations))

    workers = [threading.Thread(target=work) for _ in range(num_threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(iterations / taken for taken in seconds)
