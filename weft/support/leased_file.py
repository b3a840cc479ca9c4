"""Files that are mapped while no process can write to them.

A map of a file takes no memory of its own and no time to copy, but reading it kills the process if
another one has truncated the file, and gives other bytes if another one has written to it. A
*lease* of Linux (``fcntl(2)``) prevents both: a process that opens the file to write waits until
the lease is given back, at most the 45 s of ``/proc/sys/fs/lease-break-time``. The holder polls for
a waiting writer; the content then moves to memory, at the addresses of the map. It also does so
before the process forks, because the child would not poll.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import threading
import weakref

from weft.support.fork_locks import renew_in_child
from weft.support.libc import libc

if sys.platform == "linux":
    import fcntl

# From linux/mman.h; Python does not name them. The first reads all pages, and tells of those that
# cannot be read, which would end the process later. The others may replace another map.
_POPULATE_READ = 22
_MAP_FIXED = 0x10
_MAYMOVE_FIXED = 1 | 2
# Smaller files are read sooner than mapped.
_SMALL_BYTES = 1 << 20
# File systems (``statfs(2)``) whose files change on this machine alone, and so under its leases:
# Bcachefs, Btrfs, EROFS, Ext, F2FS, OverlayFS, SquashFS, tmpfs, XFS and ZFS. A server behind FUSE
# or 9P may change or lose a file whatever the lease.
_LOCAL = frozenset((0xCA451A4E, 0x9123683E, 0xE0F5E1E2, 0xEF53, 0xF2F52010, 0x794C7630, 0x73717368,
                    0x01021994, 0x58465342, 0x2FC12FC1))

_leased: weakref.WeakSet[LeasedFile] = weakref.WeakSet()
_not_while_forking = threading.Lock()


class ReleasableMemory(mmap.mmap):
    """Private memory or a leased file, whose pages can be given back while views of it exist."""


class LeasedFile:
    """The map of a file that does not change until ``close`` or ``settle``; thread-safe."""

    def __init__(self, file: int, memory: ReleasableMemory) -> None:
        self.memory = memory
        self._file = file
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._is_leased = True
        _leased.add(self)

    @staticmethod
    def of(file: int) -> LeasedFile | None:
        """The map of an open file; ``None`` where it is small or cannot be leased.

        Leases are for files on local file systems that belong to the user, and that no process has
        opened to write.
        """
        if sys.platform != "linux" or os.fstat(file).st_size < _SMALL_BYTES:
            return None
        own = os.dup(file)
        try:
            if not _is_local(own):
                raise OSError("not a file system of this machine")
            # The default signal for a waiting writer would end the process.
            fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(own, fcntl.F_SETOWN, 0)
            memory = _mapped(own, os.fstat(own).st_size)
        except (OSError, ValueError):
            os.close(own)
            return None
        with _not_while_forking:
            return LeasedFile(own, memory)

    @property
    def is_wanted(self) -> bool:
        """Whether a process waits for the end of the lease."""
        with self._lock:
            return self._is_leased and fcntl.fcntl(self._file, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def close(self) -> bool:
        """Unmap the file and give the lease back; false if there are views of the map."""
        with self._lock:
            if self._is_leased:
                try:
                    self.memory.close()
                except BufferError:
                    return False
                self._give_back()
            return True

    def settle(self) -> None:
        """Move the content to memory and give the lease back; views stay valid.

        Raises ``MemoryError`` if there is too little; the lease then stays.
        """
        with self._lock:
            if self._is_leased:
                _move_to_memory(self._file, self.memory)
                self._give_back()

    def _give_back(self) -> None:
        self._is_leased = False
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(self._file)


def _is_local(file: int) -> bool:
    """Whether a file is on a file system of this machine."""
    import ctypes

    status = (ctypes.c_long * 64)()  # longer than any ``struct statfs``, which starts with the type
    return not libc().fstatfs(file, status) and status[0] & 0xFFFFFFFF in _LOCAL


def _mapped(file: int, size: int) -> ReleasableMemory:
    """The map of a file, which does not keep the file open as maps of Python do."""
    memory = ReleasableMemory(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                              prot=mmap.PROT_READ)
    at = _address(memory)
    if libc().mmap(at, size, mmap.PROT_READ, mmap.MAP_PRIVATE | _MAP_FIXED, file, 0) != at:
        raise OSError("a file cannot be mapped")
    memory.madvise(mmap.MADV_WILLNEED)
    memory.madvise(_POPULATE_READ)
    return memory


def _address(memory: mmap.mmap) -> int:
    import numpy as np

    found: int = np.frombuffer(memory, np.uint8).ctypes.data
    return found


def _move_to_memory(file: int, memory: mmap.mmap) -> None:
    """Replace a map of a file by private memory with the same content, in one step."""
    import ctypes

    functions, length, failure = libc(), len(memory), ctypes.c_void_p(-1).value
    place = functions.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE,
                      mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if place == failure:
        raise MemoryError(f"cannot allocate {length} bytes for a file that is written to")
    copy, at = memoryview((ctypes.c_char * length).from_address(place)).cast("B"), 0
    while at < length and (count := os.preadv(file, [copy[at:]], at)):
        at += count
    if functions.mremap(place, length, length, _MAYMOVE_FIXED, _address(memory)) == failure:
        raise MemoryError("a map of a file cannot be replaced by memory")


def _settle_all() -> None:
    _not_while_forking.acquire()
    for lease in list(_leased):
        with contextlib.suppress(MemoryError):  # the parent still keeps the file as it is
            lease.settle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle_all, after_in_parent=_not_while_forking.release,
                        after_in_child=_not_while_forking.release)
