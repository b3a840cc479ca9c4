"""A higher recursion limit for walks over deep expressions.

Since CPython 3.11 frames of Python functions are on the heap, so recursion that does not pass
through C functions (generators, ``map``) is limited only by memory.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 100_000


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
