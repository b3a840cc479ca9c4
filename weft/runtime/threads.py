"""How many threads compiled code uses.

Which thread runs what part of a loop makes no difference to results, and neither does their number.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from dataclasses import dataclass, field

from weft.runtime.cpu import usable_cpus
from weft.runtime.library import Library, NativeLibrary, function
from weft.runtime.thread_pool import MAX_THREADS, ThreadPool
from weft.support.config import config
from weft.support.errors import OptionError


@dataclass(slots=True)
class _Process:
    """The state of this process; ``explicit`` is the count that ``set_num_threads`` gave."""

    explicit: int | None = None
    default: int | None = None
    pools: list[ThreadPool] = field(default_factory=list)
    making: threading.Lock = field(default_factory=threading.Lock)
    libraries: weakref.WeakSet[Threading] = field(default_factory=weakref.WeakSet)


_process = _Process()


def set_num_threads(count: int | None) -> None:
    """Threads for all modules of this process from their next call on; ``None``: the default.

    ``with weft.config(threads=n)`` and a module's own count (``weft.compile(..., threads=n)``) go
    before it. ``OptionError`` for what is not 1 to 4096.
    """
    _process.explicit = checked_count(count)
    _process.default = None


def checked_count(count: object) -> int | None:
    """``count`` itself; ``OptionError`` where it is neither ``None`` nor 1 to 4096."""
    if count is None:
        return None
    if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_THREADS:
        return count
    raise OptionError("threads has a value that cannot be used",
                      expected=f"1 to {MAX_THREADS}", got=repr(count))


def num_threads(own: int | None = None) -> int:
    """The threads that a call made now uses; ``own`` is the count that its module was given.

    ``with weft.config(threads=n)`` around the call goes before ``own``, and ``own`` before
    ``set_num_threads`` and the environment.
    """
    count = config.override("threads") or own or _process.explicit or _process.default
    if count is None:
        count = _process.default = default_num_threads()
    return int(count)


def default_num_threads() -> int:
    """From ``WEFT_THREADS``, else ``OMP_NUM_THREADS``, else the CPUs the process may use."""
    if config.threads is not None:
        return config.threads
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return usable_cpus()
    outermost = text.partition(",")[0].strip()  # a list gives counts for nested levels
    if not outermost.isdecimal() or not 1 <= int(outermost) <= MAX_THREADS:
        raise OptionError("OMP_NUM_THREADS has a value that cannot be used",
                          expected=f"1 to {MAX_THREADS}", got=repr(text))
    return int(outermost)


class Threading:
    """Tells one library how many threads to use, when that changes."""

    __slots__ = ("__weakref__", "_count", "_library", "_set")

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._set = function(library, "weft_set_thread_pool", None, ctypes.c_void_p,
                             ctypes.c_int32)
        self._count = 0
        _process.libraries.add(self)

    def forget(self) -> None:
        """Run serially until ``apply`` is called, as in the beginning."""
        self._set(None, 1)
        self._count = 0

    def apply(self, count: int) -> None:
        """Let calls from now on use ``count`` threads."""
        if count != self._count:
            pool = _first_pool(self._library, count)
            # A library keeps the pools: a loop of another Python thread may be about to use one
            # while this one asks for serial code.
            self._set(None if pool is None else pool.address, count)
            self._count = count


class Unthreaded:
    """Stands for ``Threading`` if the library does not use the thread pool."""

    __slots__ = ()

    def apply(self, count: int) -> None:
        """Ignore the number of threads."""


def threading_of(library: Library) -> Threading | Unthreaded:
    """How to tell a library the number of threads."""
    return Threading(library) if isinstance(library, NativeLibrary) else Unthreaded()


def _first_pool(library: NativeLibrary, count: int) -> ThreadPool | None:
    """The first of as many pools of ``count`` threads as the CPUs can keep busy at once.

    ``None`` while nobody needs one.
    """
    if count > 1:
        wanted = max(1, usable_cpus() // count)
        with _process.making:
            pools = _process.pools
            while len(pools) < wanted:
                pools.append(ThreadPool(library))
                if len(pools) > 1:
                    pools[-2].link(pools[-1])
            for pool in pools[:wanted]:
                pool.grow(count)
    return _process.pools[0] if _process.pools else None


def _after_fork() -> None:
    """Let the child start threads of its own, at its first loop that wants some.

    Those of its parent's pools do not exist there, nor can it tell what they were doing. Pools are
    never freed: a call that forked, in Python code within the model, may still refer to one.
    """
    _process.pools = []
    _process.making = threading.Lock()  # another thread may have held the old one
    for library in _process.libraries:
        library.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
