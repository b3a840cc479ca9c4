"""Settings of the Python interpreter: recursion limit, garbage collection, Ctrl-C, import path.

Walks over deep expressions need a higher recursion limit. Since CPython 3.11 frames of Python
functions are on the heap, so recursion that does not pass through C functions (generators, ``map``)
is limited only by memory.

Ctrl-C waits for the end of an import. An interrupted import leaves modules that cannot be imported
again: extension modules cannot be loaded twice, and a completely imported submodule is not an
attribute of the new package object.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_LIMIT = 100_000
# A collection of the youngest objects takes 0.1 ms or more; the default is one per 700 new objects
# (in Python 3.12 and later 2000), and a compilation makes a million, nearly all of them freed by
# their counts.
_YOUNG_OBJECTS = 100_000
# A compilation that finds the compiler imported imports fewer modules.
_MANY_MODULES = 100


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
def rare_collections(*, ages: bool = False) -> Iterator[None]:
    """Collect garbage less often in a block; no effect where it is rarer or off already.

    With ``ages`` the objects of a block that imported the compiler count as old once it has
    succeeded: the next collection would visit all of them, which takes 30 ms. Other blocks do not
    age anything: only a full collection frees old cyclic garbage, and this delays it.
    """
    before, modules = gc.get_threshold(), len(sys.modules)
    is_rarer = 0 < before[0] < _YOUNG_OBJECTS
    if is_rarer:
        gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
        has_imported = len(sys.modules) - modules >= _MANY_MODULES
        if is_rarer and ages and has_imported and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # moves to the oldest generation what ``freeze`` took out of all
    finally:
        if is_rarer and gc.get_threshold()[0] == _YOUNG_OBJECTS:
            gc.set_threshold(*before)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Defer ``KeyboardInterrupt`` for a Ctrl-C inside the block to its end.

    A second Ctrl-C interrupts immediately. Only Python's default handler is replaced, so programs
    with their own SIGINT handler keep it. No effect in threads other than the main thread.
    """
    if not _is_default():
        yield
        return
    received = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if received:
            raise KeyboardInterrupt


def _is_default() -> bool:
    return (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread inside the block; processes started there inherit the mask.

    A terminal sends Ctrl-C to all foreground processes, but worker processes end when their parent
    tells them to.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def import_path() -> list[str]:
    """The import path for a child process: absolute folders, including that of weft itself."""
    folders = [str(Path(folder).absolute()) for folder in sys.path]
    root = str(Path(__file__).resolve().parents[2])
    return folders if root in folders else [*folders, root]
