"""Deferral of Ctrl-C during imports.

An interrupted import leaves modules that cannot be imported again: extension modules cannot be
loaded twice, and a completely imported submodule is not an attribute of the new package object.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
