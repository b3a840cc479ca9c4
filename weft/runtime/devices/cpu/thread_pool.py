"""Thread pools for parallel loops, shared by all modules of a process.

The worker's code is machine code that every library carries
(``weft.codegen.llvm.runtime_support.thread_pool``); this module lays out the pool's memory and
starts the threads. A worker that finds no work for a while sleeps. Threads end with the process.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import os
import time

from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.host import usable_cpus
from weft.runtime.library import NativeLibrary, function
from weft.support.errors import WeftError
from weft.support.log import Level, debug

MAX_THREADS = 4096
FIELD_BYTES = 128  # two cache lines: adjacent-line prefetchers fetch pairs
CLOSED = 1 << 31


class PoolField(enum.IntEnum):
    """Byte offsets of the pool's fields; fields of different writers do not share cache lines."""

    GATE = 0
    BUSY = FIELD_BYTES
    # The current loop: body function, its data, number of iterations, number of participants.
    BODY = 2 * FIELD_BYTES
    DATA = 2 * FIELD_BYTES + 8
    EXTENT = 2 * FIELD_BYTES + 16
    COUNT = 2 * FIELD_BYTES + 24
    # Rarely written: functions of the C library, spins before sleeping, number of workers, the next
    # pool.
    WAIT = 3 * FIELD_BYTES
    POST = 3 * FIELD_BYTES + 8
    YIELD = 3 * FIELD_BYTES + 16
    SPINS = 3 * FIELD_BYTES + 24
    WORKERS = 3 * FIELD_BYTES + 32
    NEXT = 3 * FIELD_BYTES + 40
    LINES = 4 * FIELD_BYTES  # one line per participant


class LineField(enum.IntEnum):
    """Byte offsets in a participant's line: next iteration of its share, and wake-up state."""

    NEXT = 0
    POOL = 8
    NUMBER = 16
    ASLEEP = 24
    SEMAPHORE = 64


# Spins before a waiting thread sleeps, as OMP_WAIT_POLICY says. Only a few if there are more
# threads than CPUs, as a spinning thread would block a working one.
_SPINS = {"passive": 0, "active": 10_000_000}
_SPINS_SHARED = 100
# By default a thread spins for this many nanoseconds: calls often follow one another within a
# millisecond, and waking a thread that sleeps takes 40 us.
_SPIN_NS = 1_150_000
# How often a spin is timed, and how many at once; one takes 1 to 50 ns.
_TIMINGS, _TIMED_SPINS = 5, 1000
_SPINS_UNTIMED = 30_000
_MASK_BYTES = 1024  # size of a CPU set; enough for any Linux


class ThreadPool:
    """A pool of persistent threads; libraries are given its ``address``.

    The threads run code of ``library``, which therefore stays in memory.
    """

    def __init__(self, library: NativeLibrary) -> None:
        self._memory = AlignedBlock(PoolField.LINES + MAX_THREADS * FIELD_BYTES)
        self._memory.array[: PoolField.LINES + FIELD_BYTES] = 0
        self.address = self._memory.address
        self._libc = ctypes.CDLL(None)
        self._library = library
        self._entry = library.address("weft_worker")
        self._count = 1
        for field, name in ((PoolField.WAIT, "sem_wait"), (PoolField.POST, "sem_post"),
                            (PoolField.YIELD, "sched_yield")):
            self._write(field, ctypes.cast(getattr(self._libc, name), ctypes.c_void_p).value or 0)
        self._write(PoolField.GATE, CLOSED)
        # Threads may still run at interpreter exit, so this memory is never freed.
        for kept in (library, self._memory.array):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def link(self, other: ThreadPool) -> None:
        """Let loops use ``other`` if this pool is busy."""
        self._write(PoolField.NEXT, other.address)

    def grow(self, count: int) -> None:
        """Start workers until loops can run on ``count`` threads, including the caller.

        Fewer if the system refuses to start threads. Not thread-safe.
        """
        if count <= self._count:
            return
        self._write(PoolField.SPINS, _spins(count, self._library))
        while self._count < count and self._start(self._count):
            self._count += 1
        self._write(PoolField.WORKERS, self._count - 1)

    def _start(self, number: int) -> bool:
        line = PoolField.LINES + number * FIELD_BYTES
        self._memory.array[line : line + FIELD_BYTES] = 0
        self._write(line + LineField.POOL, self.address)
        self._write(line + LineField.NUMBER, number)
        self._libc.sem_init(ctypes.c_void_p(self.address + line + LineField.SEMAPHORE), 0, 0)
        thread = ctypes.c_ulong()
        status = self._libc.pthread_create(ctypes.byref(thread), None,
                                           ctypes.c_void_p(self._entry),
                                           ctypes.c_void_p(self.address + line))
        if status != 0:
            debug(Level.CACHE, "threads", f"pthread_create failed for worker {number}: {status}")
            return False
        self._keep_off_this_cpu(thread)
        self._libc.pthread_detach(thread)
        return True

    def _keep_off_this_cpu(self, thread: ctypes.c_ulong) -> None:
        """Exclude the CPU of the creating thread from a worker's affinity.

        On a busy machine the scheduler tends to wake the worker there, where both would share it.
        """
        others = os.sched_getaffinity(0) - {self._libc.sched_getcpu()}
        mask = sum(1 << cpu for cpu in others).to_bytes(_MASK_BYTES, "little")
        if others:
            self._libc.pthread_setaffinity_np(thread, ctypes.c_size_t(_MASK_BYTES), mask)

    def _write(self, offset: int, value: int) -> None:
        ctypes.c_uint64.from_address(self.address + offset).value = value


def _spins(count: int, library: NativeLibrary) -> int:
    policy = os.environ.get("OMP_WAIT_POLICY", "").strip().lower()
    if policy in _SPINS:
        return _SPINS[policy]
    return _default_spins(library) if count <= usable_cpus() else _SPINS_SHARED


@functools.cache
def _default_spins(library: NativeLibrary) -> int:
    """How often this CPU spins in ``_SPIN_NS``."""
    try:
        spin = function(library, "weft_spin", None, ctypes.c_int64)
    except WeftError:  # an artifact of an earlier version
        return _SPINS_UNTIMED
    taken = []
    for _ in range(_TIMINGS):
        start = time.perf_counter_ns()
        spin(_TIMED_SPINS)
        taken.append(time.perf_counter_ns() - start)
    return _SPIN_NS * _TIMED_SPINS // max(min(taken), _TIMED_SPINS // 4)
