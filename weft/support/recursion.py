"""Room for walks over deep expressions.

Frames of Python functions that call one another live on the heap since CPython 3.11: a walk that
passes through no C function (no generator, no ``map``) may nest as deep as memory allows.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 100_000


class _Limit:
    """Python's limit, which all threads of a process share, and who needs a higher one.

    The first that comes raises it and the last that leaves restores it: a thread that is done must
    not take the room from under another one that is still walking.
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
            # A limit that the program has set meanwhile stays.
            if self._users == 0 and sys.getrecursionlimit() == _LIMIT:
                with contextlib.suppress(RecursionError):  # the caller is below the old one
                    sys.setrecursionlimit(self._before)


_limit = _Limit()


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's limit meanwhile: fused chains nest deeper than its default.

    The limit is one of the process, so other threads may nest deeper too until the last walk ends.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
