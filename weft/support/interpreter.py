"""Settings of the Python interpreter inside a block: recursion limit, garbage collection.

Walks over deep expressions need a higher recursion limit. Since CPython 3.11 frames of Python
functions are on the heap, so recursion that does not pass through C functions (generators, ``map``)
is limited only by memory.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 100_000
# A collection of the youngest objects takes 0.1 ms or more; the default is one per 700 new objects
# (in Python 3.12 and later 2000), and a compilation makes a million, nearly all of them freed by
# their counts.
_YOUNG_OBJECTS = 100_000


class _Limit:
    """Python's recursion limit, which is per process, with a count of users of the higher limit.

    The first user raises it and the last one restores it, so that a thread does not lower the limit
    while another one still needs it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._before, _LIMIT))
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            # Keep a limit that the program has set meanwhile.
            if self._users == 0 and sys.getrecursionlimit() == _LIMIT:
                with contextlib.suppress(RecursionError):  # the stack is deeper than the old limit
                    sys.setrecursionlimit(self._before)


_limit = _Limit()


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit inside the block: fused chains exceed the default.

    The limit is per process, so it also applies to other threads until the last block ends.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often in a block; no effect where it is rarer or off already."""
    before = gc.get_threshold()
    if 0 < before[0] < _YOUNG_OBJECTS:
        gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _YOUNG_OBJECTS:
            gc.set_threshold(*before)
