"""The number of threads of compiled code.

Results depend neither on the number of threads nor on which thread runs an iteration.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Hashable
from dataclasses import field

from weft.runtime.devices.cpu.host import usable_cpus
from weft.runtime.devices.cpu.thread_pool import MAX_THREADS, ThreadPool
from weft.runtime.library import Library, NativeLibrary, function
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError


@dataclass(slots=True)
class _Process:
    """Per-process state; ``explicit`` is the count set by ``set_num_threads``."""

    explicit: int | None = None
    default: int | None = None
    pools: list[ThreadPool] = field(default_factory=list)
    own_pools: dict[Hashable, ThreadPool] = field(default_factory=dict)
    making: threading.Lock = field(default_factory=threading.Lock)
    libraries: weakref.WeakSet[Threading] = field(default_factory=weakref.WeakSet)


_process = _Process()


def set_num_threads(count: int | None) -> None:
    """Set the number of threads of all modules of this process; ``None`` restores the default.

    ``with weft.config(threads=n)`` and the count of a module (``weft.compile(..., threads=n)``)
    take precedence. ``OptionError`` unless ``count`` is 1 to 4096.
    """
    _process.explicit = checked_count(count)
    _process.default = None


def checked_count(count: object) -> int | None:
    """``count``; ``OptionError`` unless it is ``None`` or 1 to 4096."""
    if count is None:
        return None
    if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_THREADS:
        return count
    raise OptionError("invalid number of threads",
                      expected=f"1 to {MAX_THREADS}", got=repr(count))


def num_threads(own: int | None = None) -> int:
    """The number of threads of a call; ``own`` is the count given to its module.

    Precedence: ``with weft.config(threads=n)``, ``own``, ``set_num_threads``, the environment.
    """
    count = config.override("threads") or own or _process.explicit or _process.default
    if count is None:
        count = _process.default = default_num_threads()
    return int(count)


def default_num_threads() -> int:
    """``WEFT_THREADS``, else ``OMP_NUM_THREADS``, else the number of usable CPUs."""
    if config.threads is not None:
        return config.threads
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return usable_cpus()
    outermost = text.partition(",")[0].strip()  # a list has one count per nesting level
    if not outermost.isdecimal() or not 1 <= int(outermost) <= MAX_THREADS:
        raise OptionError("invalid value of OMP_NUM_THREADS",
                          expected=f"1 to {MAX_THREADS}", got=repr(text))
    return int(outermost)


class Threading:
    """Sets the number of threads of one library."""

    __slots__ = ("__weakref__", "_count", "_library", "_set")

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._set = function(library, "weft_set_thread_pool", None, ctypes.c_void_p,
                             ctypes.c_int32)
        self._count = 0
        _process.libraries.add(self)

    def forget(self) -> None:
        """Reset to serial execution, until ``apply`` is called."""
        self._set(None, 1)
        self._count = 0

    def apply(self, count: int) -> None:
        """Use ``count`` threads from the next call on."""
        if count != self._count:
            pool = _first_pool(self._library, count)
            # Keep the pool even for one thread: a loop of another Python thread may be about to
            # use it.
            self._set(None if pool is None else pool.address, count)
            self._count = count

    def apply_own(self, owner: Hashable, count: int) -> None:
        """Use ``count`` threads that work for a device or stream alone, from the next call on."""
        if count != self._count:
            pool = _pool_of(owner, self._library, count) if count > 1 else None
            self._set(None if pool is None else pool.address, count)
            self._count = count


class OwnThreading(Threading):
    """Sets the number of threads of one library, which work for ``owner`` alone."""

    __slots__ = ("_owner",)

    def __init__(self, library: NativeLibrary, owner: Hashable) -> None:
        super().__init__(library)
        self._owner = owner

    def apply(self, count: int) -> None:
        """See ``Threading.apply``."""
        self.apply_own(self._owner, count)


class Unthreaded:
    """Stands for ``Threading`` if the library does not use the thread pool."""

    __slots__ = ()

    def apply(self, count: int) -> None:
        """Ignore the number of threads."""


def threading_of(library: Library, owner: Hashable = None) -> Threading | Unthreaded:
    """How to tell a library the number of threads; ``owner`` has a pool of its own."""
    if not isinstance(library, NativeLibrary):
        return Unthreaded()
    return Threading(library) if owner is None else OwnThreading(library, owner)


def _first_pool(library: NativeLibrary, count: int) -> ThreadPool | None:
    """The first of a chain of pools: as many pools of ``count`` threads as there are CPUs for.

    ``None`` if no pool has been needed so far.
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


def _pool_of(owner: Hashable, library: NativeLibrary, count: int) -> ThreadPool:
    """The pool of a device or stream, with ``count`` threads or more."""
    with _process.making:
        pool = _process.own_pools.get(owner)
        if pool is None:
            pool = _process.own_pools[owner] = ThreadPool(library)
        pool.grow(count)
        return pool


def _after_fork() -> None:
    """Reset the pools in a forked child; its first parallel loop starts new threads.

    The parent's workers do not exist in the child, and their state is unknown. The old pools are
    not freed: a call that forked, in Python code of the model, may still use one.
    """
    _process.pools = []
    _process.own_pools = {}
    _process.making = threading.Lock()  # another thread may have held the old one
    for library in _process.libraries:
        library.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
