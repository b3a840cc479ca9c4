"""The threads that share parallel loops, in pools for all modules of a process.

The worker's code is machine code that every library carries
(``weft.codegen.llvm.runtime_support.thread_pool``); this module lays out the pool's memory and
starts the threads. A worker that finds no work for a while sleeps. Threads end with the process.
"""

from __future__ import annotations

import ctypes
import enum
import os

from weft.runtime.arena import AlignedBlock
from weft.runtime.cpu import usable_cpus
from weft.runtime.library import NativeLibrary
from weft.support.log import Level, debug

MAX_THREADS = 4096
FIELD_BYTES = 128  # two cache lines, for prefetchers fetch pairs
CLOSED = 1 << 31


class PoolField(enum.IntEnum):
    """Where the fields lie; those that different threads write are on lines of their own."""

    GATE = 0
    BUSY = FIELD_BYTES
    # The loop at hand: its body, the data of that, its iterations, the threads that share them.
    BODY = 2 * FIELD_BYTES
    DATA = 2 * FIELD_BYTES + 8
    EXTENT = 2 * FIELD_BYTES + 16
    COUNT = 2 * FIELD_BYTES + 24
    # What hardly changes: functions of the C library, rounds of waiting before sleep, how many
    # workers there are, the next pool.
    WAIT = 3 * FIELD_BYTES
    POST = 3 * FIELD_BYTES + 8
    YIELD = 3 * FIELD_BYTES + 16
    SPINS = 3 * FIELD_BYTES + 24
    WORKERS = 3 * FIELD_BYTES + 32
    NEXT = 3 * FIELD_BYTES + 40
    LINES = 4 * FIELD_BYTES  # one for each participant


class LineField(enum.IntEnum):
    """What the line of a participant has: the next iteration of its share, and how to wake it."""

    NEXT = 0
    POOL = 8
    NUMBER = 16
    ASLEEP = 24
    SEMAPHORE = 64


# How often a thread looks for work before it sleeps: about a millisecond, by OMP_WAIT_POLICY more
# or less. Where threads share cores, waiting keeps others from working.
_SPINS = {"passive": 0, "active": 10_000_000, "": 30_000}
_SPINS_SHARED = 100
_MASK_BYTES = 1024  # of a set of CPUs: as many as any Linux has


class ThreadPool:
    """Threads that last; ``address`` is what libraries are given.

    The code of ``library``, which the threads run, stays in memory with them.
    """

    def __init__(self, library: NativeLibrary) -> None:
        self._memory = AlignedBlock(PoolField.LINES + MAX_THREADS * FIELD_BYTES)
        self._memory.array[: PoolField.LINES + FIELD_BYTES] = 0
        self.address = self._memory.address
        self._libc = ctypes.CDLL(None)
        self._entry = library.address("weft_worker")
        self._count = 1
        for field, name in ((PoolField.WAIT, "sem_wait"), (PoolField.POST, "sem_post"),
                            (PoolField.YIELD, "sched_yield")):
            self._write(field, ctypes.cast(getattr(self._libc, name), ctypes.c_void_p).value or 0)
        self._write(PoolField.GATE, CLOSED)
        # The threads may run while the interpreter ends, so nothing of this is ever freed.
        for kept in (library, self._memory.array):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def link(self, other: ThreadPool) -> None:
        """Let loops that find this pool at work try ``other``."""
        self._write(PoolField.NEXT, other.address)

    def grow(self, count: int) -> None:
        """Have enough threads for loops on ``count``, the caller's among them, if that can be.

        One caller at a time.
        """
        if count <= self._count:
            return
        self._write(PoolField.SPINS, _spins(count))
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
            debug(Level.CACHE, "threads", f"thread {number} cannot be started: status {status}")
            return False
        self._keep_off_this_cpu(thread)
        self._libc.pthread_detach(thread)
        return True

    def _keep_off_this_cpu(self, thread: ctypes.c_ulong) -> None:
        """Let a worker go to any CPU but that of the thread that makes the pool.

        On a busy machine the system likes to wake it there, where the two take turns.
        """
        others = os.sched_getaffinity(0) - {self._libc.sched_getcpu()}
        mask = sum(1 << cpu for cpu in others).to_bytes(_MASK_BYTES, "little")
        if others:
            self._libc.pthread_setaffinity_np(thread, ctypes.c_size_t(_MASK_BYTES), mask)

    def _write(self, offset: int, value: int) -> None:
        ctypes.c_uint64.from_address(self.address + offset).value = value


def _spins(count: int) -> int:
    policy = os.environ.get("OMP_WAIT_POLICY", "").strip().lower()
    if policy not in _SPINS:
        policy = ""
    return _SPINS[policy] if policy or count <= usable_cpus() else _SPINS_SHARED
