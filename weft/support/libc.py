"""Functions of the C library that Python does not have."""

from __future__ import annotations

import errno
import functools
import os
import sys
from typing import Any

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@functools.cache
def libc() -> Any:
    """The C library of this process, on Linux."""
    import ctypes

    found = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    found.mmap.restype = found.mremap.restype = address
    found.mmap.argtypes = (address, size, number, number, number, ctypes.c_long)
    found.mremap.argtypes = (address, size, size, number, address)
    found.fallocate.argtypes = (number, number, ctypes.c_long, ctypes.c_long)
    return found


def reserve_space(file: int, nbytes: int) -> None:
    """Give a file its first ``nbytes`` on the disk, where the file system can do so at once.

    Raises ``OSError`` where there is too little space. (``posix_fallocate`` would write to each
    block where the file system cannot.)
    """
    if sys.platform != "linux":
        return
    import ctypes

    if libc().fallocate(file, 0, 0, nbytes) and ctypes.get_errno() in _NO_SPACE:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def trim_heap() -> None:
    """Give the system the free memory of the heap, which takes a millisecond; glibc alone can."""
    if sys.platform == "linux" and hasattr(libc(), "malloc_trim"):
        libc().malloc_trim(0)
