"""Runs the micro-kernels and returns rates; what other programs disturb is measured again.

Every figure is the best of several short rounds: a round is shorter than the time slice of a
scheduler, so that on a busy machine some rounds are undisturbed.
"""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from weft.codegen.calibration.kernels import (
    CHAIN_STEPS,
    CHASE_STEPS,
    LINE,
    SLOW_CHAIN_STEPS,
    fma_count,
    module_text,
)
from weft.codegen.llvm.backend import CPU_BACKEND
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.runtime_support.build import build_runtime_support
from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.threads import Threading
from weft.runtime.library import function
from weft.target import CpuTarget
from weft.target.machine import VECTOR_BITS

ROUNDS = 15
_ROUND_SECONDS = 0.0004
_TRIALS = 3  # of a round whose length is not known yet
_FORK_JOINS, _FORK_JOIN_ROUNDS = 4, 600
_WINDOW = 4 << 20  # bytes of a sweep over memory
_STREAMED = 1 << 20  # bytes of a sweep with arithmetic
_CHASES, _CHASE_LOADS = 1 << 16, 1 << 11  # loads of a measurement, and of one round of it


class Meter:
    """The micro-kernels of a target, loaded, and buffers for them.

    Rates are per cycle of ``clock``, the rate of dependent integer operations per second.
    """

    def __init__(self, target: CpuTarget, max_bytes: int) -> None:
        self.target = target
        self.widths = tuple(w for w in VECTOR_BITS if w <= target.vector_bits)
        text = module_text(target, self.widths)
        externs = frozenset(["weft_parallel_launch"])
        objects = [build_text("weft_calibration", text, target, externs=externs).object,
                   build_runtime_support(target).object]
        self._library = CPU_BACKEND.load(objects, target)
        self._block = AlignedBlock(max_bytes)
        self._block.array[:] = 0  # every page has memory
        self._block.array[:LINE].view(np.float32)[:] = 0.5
        self.spreads: list[float] = []  # of each figure: its median round over the best, less 1
        self.clock = self._clock()

    def _clock(self) -> float:
        run = self._function("chain", ctypes.c_int64, ctypes.c_int64)
        return CHAIN_STEPS / self._best(lambda n: run(n, 3, 5))

    def vector_clock(self) -> float:
        """The clock in Hz while vector units are busy."""
        run = self._function("vector_chain", ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        address = self._block.address
        return SLOW_CHAIN_STEPS / self._best(lambda n: run(n, 3, 5, address))

    def fma_rate(self, width: int) -> float:
        """Multiply-adds per cycle of vectors of ``width`` bits."""
        return fma_count(self.target, latency=False) / self._fma_cycles(f"fma_{width}")

    def fma_latency(self) -> float:
        """Cycles from one multiply-add to the next that needs its result."""
        cycles = self._fma_cycles(f"fma_latency_{self.widths[-1]}")
        return cycles / fma_count(self.target, latency=True)

    def vector_rate(self, name: str) -> float:
        """Instructions per cycle of ``mixed``, ``shuffle`` or ``divide``, on the widest vectors."""
        return fma_count(self.target, latency=False) / self._fma_cycles(f"{name}_{self.widths[-1]}")

    def gather_cycles(self) -> float:
        """Cycles per element of a vector that is gathered, each from its own address."""
        width = self.widths[-1]
        return self._fma_cycles(f"gather_{width}") / (width // 32)

    def _fma_cycles(self, name: str) -> float:
        run, address = self._function(name, ctypes.c_void_p), self._block.address
        return self._best(lambda n: run(n, address)) * self.clock

    def load_rate(self, nbytes: int, width: int = 0) -> float:
        """Bytes per cycle of sequential loads over ``nbytes``, which stay in a cache."""
        return self._sweep_rate(f"load_{width or self.widths[-1]}", nbytes)

    def store_rate(self, nbytes: int, width: int = 0) -> float:
        """Bytes per cycle of sequential stores over ``nbytes``, which stay in a cache."""
        return self._sweep_rate(f"store_{width or self.widths[-1]}", nbytes)

    def _sweep_rate(self, name: str, nbytes: int) -> float:
        run, nbytes, address = self._sweep(name), _whole(nbytes), self._block.address
        return nbytes / (self._best(lambda n: run(n, address, nbytes)) * self.clock)

    def memory_rate(self, name: str) -> float:
        """Bytes per cycle of sequential loads or stores (``name``) in memory.

        The windows of the buffer alternate: the others evict one before it is read again.
        """
        run = self._sweep(f"{name}_{self.widths[-1]}")
        for at in self._windows():
            run(1, at, _WINDOW)
        best = min(self._once(lambda at=at: run(1, at, _WINDOW)) for at in self._windows())
        return _WINDOW / (best * self.clock)

    def _windows(self) -> Iterator[int]:
        """Addresses of windows of the buffer; after one pass over all, no cache holds the first."""
        for number in range(self._block.nbytes // _WINDOW):
            yield self._block.address + number * _WINDOW

    def shared_load_rate(self, nbytes: int, threads: int) -> float:
        """Bytes per cycle of one thread while ``threads`` load, each from ``nbytes`` of its own."""
        run = self._sweep(f"load_{self.widths[-1]}")
        nbytes = _whole(min(nbytes, self._block.nbytes // threads))
        count = max(1, round(2 * _ROUND_SECONDS / self._once(
            lambda: run(1, self._block.address, nbytes))))
        seconds = min(self._together(run, threads, nbytes, count) for _ in range(ROUNDS))
        return nbytes * count / (seconds * self.clock)

    def _together(self, run: Callable[..., object], threads: int, nbytes: int, count: int) -> float:
        """Median seconds of ``threads`` that load at the same time."""
        barrier, seconds = threading.Barrier(threads), [0.0] * threads

        def work(number: int) -> None:
            start = self._block.address + number * nbytes
            barrier.wait()
            seconds[number] = self._once(lambda: run(count, start, nbytes))

        workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return statistics.median(seconds)

    def latency(self, nbytes: int) -> float:
        """Cycles of a load whose address depends on the one before, over lines of ``nbytes``."""
        run = function(self._library, "chase", ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        at = self._link_lines(_whole(nbytes))
        lines = nbytes // LINE
        at = run(min(lines, _CHASES) // CHASE_STEPS, at)  # brings the lines into the caches
        best = math.inf
        loads = max(_CHASE_LOADS, min(4 * lines, _CHASES) // ROUNDS)
        for _ in range(max(ROUNDS, min(2 * lines, _CHASES) // loads)):
            start = time.perf_counter()
            at = run(loads // CHASE_STEPS, at)  # continues where the last round ended
            best = min(best, time.perf_counter() - start)
        self._block.array[:LINE].view(np.float32)[:] = 0.5
        return best / (loads // CHASE_STEPS * CHASE_STEPS) * self.clock

    def _link_lines(self, nbytes: int) -> int:
        """Write the address of another line into each, in one random cycle; the first line."""
        words = self._block.array[:nbytes].view(np.uint64)
        order = np.random.default_rng(0).permutation(nbytes // LINE).astype(np.uint64)
        words[order * np.uint64(LINE // 8)] = (
            np.roll(order, -1) * np.uint64(LINE) + np.uint64(self._block.address))
        return self._block.address

    def prefetch_rates(self, distances: Sequence[int]) -> list[float]:
        """Bytes per cycle of a GEMM's stream in memory, for each distance of prefetching."""
        run = self._sweep("stream", ctypes.c_int64)
        best = [math.inf] * len(distances)
        addresses = [*self._windows(), *self._windows()]
        for number, at in enumerate(addresses):  # windows and distances alternate
            which = number % len(distances)
            taken = self._once(lambda at=at, which=which: run(
                1, at, _STREAMED, distances[which]))
            best[which] = min(best[which], taken)
        return [_STREAMED / (seconds * self.clock) for seconds in best]

    def fork_join_seconds(self, threads: int) -> float | None:
        """Seconds that a parallel loop takes longer than one of its equal shares.

        ``None`` if the other threads hardly took part, because their CPUs are busy.
        """
        run = self._function("fork_join", ctypes.c_int64)
        pool = Threading(self._library)
        times = []
        try:
            for count in (1, threads):
                pool.apply(count)
                times.append(min(self._once(lambda count=count: run(_FORK_JOINS, count))
                                 for _ in range(_FORK_JOIN_ROUNDS)) / _FORK_JOINS)
        finally:
            pool.forget()
        share, parallel = times
        return parallel - share if 0 < parallel - share < share / 4 else None

    def _sweep(self, name: str, *types: type) -> Callable[..., object]:
        return self._function(name, ctypes.c_void_p, ctypes.c_int64, *types)

    @property
    def noise(self) -> float:
        """How much longer a round takes than the best, in the median over all figures."""
        return statistics.median(self.spreads) if self.spreads else 0.0

    def _function(self, name: str, *types: type) -> Callable[..., object]:
        return function(self._library, name, None, ctypes.c_int64, *types)

    def _best(self, run: Callable[[int], object]) -> float:
        """Seconds of one iteration, in the best of ``ROUNDS`` rounds."""
        count = 1
        while (seconds := self._brief(functools.partial(run, count))) < _ROUND_SECONDS / 4:
            count *= 4
        count = max(1, round(count * _ROUND_SECONDS / seconds))
        times = [self._once(functools.partial(run, count)) for _ in range(ROUNDS)]
        best = min(times)
        self.spreads.append(statistics.median(times) / best - 1)
        return best / count

    def _brief(self, run: Callable[[], object]) -> float:
        """Seconds of a round whose length decides how long all are.

        One that another program interrupted would make them so short that the call counts.
        """
        return min(self._once(run) for _ in range(_TRIALS))

    @staticmethod
    def _once(run: Callable[[], object]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def _whole(nbytes: int) -> int:
    """``nbytes`` in whole iterations of every memory loop."""
    return max(1, nbytes // 1024) * 1024
