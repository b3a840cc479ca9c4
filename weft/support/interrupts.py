"""Ctrl-C that waits for the end of an import.

An import that is cut short leaves modules behind that cannot be imported again: extension modules
refuse to be loaded twice, and a submodule that was complete is no attribute of the new package.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` for a Ctrl-C within the block when the block ends.

    A second Ctrl-C interrupts at once. Only Python's own handler is replaced: a program that
    handles SIGINT itself keeps doing so, and threads other than the main one never get it.
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
    """Block SIGINT in this thread, and in processes that the block starts, for all their life.

    A terminal sends Ctrl-C to every process in the foreground. Children that end when their
    parent says so must not get it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
