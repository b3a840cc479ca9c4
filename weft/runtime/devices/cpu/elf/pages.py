"""Pages of this process whose rights change: written first, executed afterwards."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from weft.support.errors import CodegenError

READ, WRITE, EXECUTE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC
_C = ctypes.CDLL(None, use_errno=True)
_map = _C.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                 ctypes.c_long]
_unmap = _C.munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_protect = _C.mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value


def whole_pages(nbytes: int) -> int:
    """``nbytes`` rounded up to pages."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


class Pages:
    """``nbytes`` of zeros at ``address``, writable through ``bytes``; unmapped with the object.

    Threads may still run code in them when the process ends, so they are not unmapped then. Raises
    ``MemoryError``.
    """

    def __init__(self, nbytes: int) -> None:
        size = max(whole_pages(nbytes), mmap.PAGESIZE)
        address = _map(None, size, READ | WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if address in (None, _FAILED):
            raise MemoryError(f"cannot map {size} bytes for compiled code")
        self.address: int = address
        self.bytes = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
        closing = weakref.finalize(self, _unmap, address, size)
        setattr(closing, "atexit", False)  # noqa: B010 - a property that the type stubs lack

    def protect(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Give each range (first byte, end, rights), which starts at a page, its rights.

        Raises ``CodegenError`` if the system forbids it.
        """
        for start, end, rights in ranges:
            size = whole_pages(end) - start
            if size and _protect(self.address + start, size, rights) != 0:
                raise CodegenError("the system does not allow executable memory",
                                   got=os.strerror(ctypes.get_errno()),
                                   help="allow it for this process (SELinux: execmem)")


class NamedCode(NamedTuple):
    """A function or variable in memory; ``size`` is in bytes."""

    name: str
    address: int
    size: int


def write_perf_map(symbols: Iterable[NamedCode]) -> None:
    """Add ``symbols`` to /tmp/perf-PID.map."""
    with Path(f"/tmp/perf-{os.getpid()}.map").open("a", encoding="ascii") as file:  # noqa: S108
        file.writelines(f"{s.address:x} {s.size:x} {s.name}\n" for s in symbols)
