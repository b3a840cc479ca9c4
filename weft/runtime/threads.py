"""How many threads compiled code uses, and the OpenMP runtime that provides them.

Compiled code forks and joins through three OpenMP entry points that are handed to it when it is
loaded; without an OpenMP runtime it is serial. Which runtime is found makes no difference to
results: every thread's share of a loop depends on the number of threads alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
import site
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.runtime.cpu import usable_cpus
from weft.runtime.library import Library, function
from weft.support.config import config
from weft.support.errors import OptionError
from weft.support.log import Level, debug

MAX_THREADS = 4096
SYSTEM_LIBRARIES = ("libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so")
# Where packages from PyPI keep theirs: scikit-learn and others, torch, intel-openmp.
PACKAGED = ("*.libs/libgomp*.so*", "torch/lib/libgomp*.so*", "*.libs/libomp*.so*",
            "torch/lib/libomp*.so*", "torch/lib/libiomp5.so")


@dataclass(frozen=True, slots=True)
class OpenMP:
    """An OpenMP runtime in this process: addresses of what compiled code calls."""

    path: str
    parallel: int
    get_thread_num: int
    get_num_threads: int


@dataclass(slots=True)
class _Process:
    """The state of this process; ``explicit`` is the count that ``set_num_threads`` gave."""

    explicit: int | None = None
    default: int | None = None
    forked: bool = False
    pool_may_exist: bool = False


_process = _Process()


def set_num_threads(count: int | None) -> None:
    """Threads for all modules of this process from their next call on; ``None``: the default.

    ``with weft.config(threads=n)`` goes before it. ``OptionError`` for what is not 1 to 4096.
    """
    if count is not None:
        good = isinstance(count, int) and not isinstance(count, bool)
        if not good or not 1 <= count <= MAX_THREADS:
            raise OptionError("a number of threads that cannot be used",
                              expected=f"1 to {MAX_THREADS}", got=repr(count))
    _process.explicit = count
    _process.default = None


def num_threads() -> int:
    """The threads that a call made now uses."""
    if _process.forked:
        return 1
    count = config.override("threads") or _process.explicit or _process.default
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

    __slots__ = ("_count", "_set")

    def __init__(self, library: Library) -> None:
        pointer = ctypes.c_void_p
        self._set = function(library, "weft_set_threading", None, pointer, pointer, pointer,
                             ctypes.c_int32)
        self._count = 0

    def apply(self, count: int) -> None:
        """Let calls from now on use ``count`` threads."""
        if count != self._count:
            configure(self._set, count)
            self._count = count


def configure(set_threading: Callable[..., None], count: int) -> None:
    """Hand the OpenMP runtime to a library, or none where there is none or no need of it."""
    _process.pool_may_exist = _process.pool_may_exist or count > 1
    # Once a library has its entry points it keeps them: a parallel region of another Python
    # thread may be about to use them while this one asks for serial code.
    openmp = find_openmp() if _process.pool_may_exist else None
    if openmp is None:
        set_threading(None, None, None, 1)
    else:
        set_threading(openmp.parallel, openmp.get_thread_num, openmp.get_num_threads, count)


@functools.lru_cache(maxsize=1)
def find_openmp() -> OpenMP | None:
    """The OpenMP runtime at hand: libgomp before the others, the system's before packaged ones."""
    for path in _candidates():
        try:
            runtime = ctypes.CDLL(path)
            entries = [ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value or 0
                       for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")]
        except (OSError, AttributeError):
            continue
        debug(Level.CACHE, "threads", f"OpenMP runtime {path}")
        return OpenMP(path, *entries)
    debug(Level.CACHE, "threads", "no OpenMP runtime found: compiled code runs on one thread")
    return None


def _candidates() -> Iterator[str]:
    yield from SYSTEM_LIBRARIES
    for folder in _package_folders():
        for pattern in PACKAGED:
            yield from map(str, sorted(folder.glob(pattern)))
    yield str(Path(sys.prefix) / "lib" / "libiomp5.so")  # where intel-openmp puts it


def _package_folders() -> list[Path]:
    names = [*site.getsitepackages(), site.getusersitepackages()]
    names += [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    return [Path(name) for name in dict.fromkeys(names)]


def _after_fork() -> None:
    # The threads of an OpenMP pool do not exist in the child, which would wait for them forever.
    _process.forked = _process.forked or _process.pool_may_exist


os.register_at_fork(after_in_child=_after_fork)
