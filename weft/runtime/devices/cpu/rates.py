"""Rates of machine code that loops a given number of times, on several threads at once."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import time
from collections.abc import Callable, Sequence

from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.host import cache_bytes
from weft.runtime.library import Library, NativeLibrary, function

Loop = Callable[[int], object]
_TRIALS = 3


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
    # One run that another program interrupted would make all rounds too short.
    while (taken := min(_timed(loop, iterations) for _ in range(_TRIALS))) < seconds / 4:
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


_PEAK_SECONDS = 0.01
_PEAK_ROUNDS = 8


def measure_fma_peak(library: Library, num_threads: int = 1) -> float:
    """GFLOP/s of float32 multiply-adds in vector registers, on ``num_threads`` threads together.

    Calls ``weft_fma_peak`` of the library's runtime support for about 0.1 s. ``nan`` for a
    library that is not machine code of this process.
    """
    if not isinstance(library, NativeLibrary):
        return math.nan
    run = function(library, "weft_fma_peak", None, ctypes.c_int64)
    flops = int(function(library, "weft_fma_peak_flops", ctypes.c_int64)())
    return best_rate([run] * num_threads, _PEAK_SECONDS, _PEAK_ROUNDS) * flops * 1e-9


READ = "weft_read"
_UNIT = 4096  # bytes; a block that is read is a multiple
_MEMORY_BYTES = 96 << 20  # of all threads together; several times most third-level caches
_READ_SECONDS = 0.004
_READ_ROUNDS = 4
_DEFAULTS = ((1, 32 << 10), (2, 512 << 10), (3, 8 << 20))

# Bytes that all threads together hold in a level, and the GB/s at which they read from it.
Level = tuple[float, float]


def measure_bandwidths(library: NativeLibrary, num_threads: int) -> tuple[Level, ...]:
    """Each cache level and memory: capacity in bytes, and GB/s of ``num_threads`` together.

    A level is read through a buffer of half its size. Each core has caches of the first and second
    level; the third is shared. Takes about 0.2 s.
    """
    sizes = [(level, cache_bytes(level, default)) for level, default in _DEFAULTS]
    capacities = [size * (num_threads if level < 3 else 1) for level, size in sizes]
    buffers = [*(size // 2 for size in capacities), max(_MEMORY_BYTES, 2 * capacities[-1])]
    blocks = [AlignedBlock(max(buffers) // num_threads + _UNIT) for _ in range(num_threads)]
    for block in blocks:
        block.array[:] = 0  # so that every page exists
    rates = [_read_rate(library, blocks, size // num_threads) for size in buffers]
    return tuple(zip([*map(float, capacities), math.inf], rates, strict=True))


def _read_rate(library: NativeLibrary, blocks: Sequence[AlignedBlock], nbytes: int) -> float:
    """GB/s of threads that read the first ``nbytes`` of their blocks again and again."""
    units = max(1, nbytes // _UNIT)
    read = function(library, READ, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    runs = [functools.partial(read, block.address, units) for block in blocks]
    return best_rate(runs, _READ_SECONDS, _READ_ROUNDS) * units * _UNIT * 1e-9
