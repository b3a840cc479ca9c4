"""Faster code for an executable that already answers, made by a thread beside the program.

The executable runs the first code until a launcher of the faster one takes its place, between two
calls. An error leaves the first code where it is, and is told once. A process that ends waits for
the thread's current step; a process does not fork while a step runs, and a forked child keeps the
first code.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from weft.runtime.launchers import Launcher
from weft.support.log import logger

if TYPE_CHECKING:
    from weft.runtime.executable import Executable

# Held while a step runs: its locks must be free in a forked child.
_step = threading.Lock()
_running: weakref.WeakSet[Improvement] = weakref.WeakSet()
_ending = threading.Event()


class Improvement:
    """The code to come of one executable.

    ``make`` makes the code, ``load`` its launcher; both run in the thread, in the context of the
    caller. ``what`` names the model in messages.
    """

    def __init__(self, make: Callable[[], Any], load: Callable[[Any], Launcher], what: str) -> None:
        self._make, self._load = make, load
        self._what = what
        self._done = threading.Event()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self.code: Any = None
        self.error: BaseException | None = None

    def start(self, executable: Executable) -> None:
        """Start the thread, which gives ``executable`` the launcher if it still exists then."""
        run, owner = copy_context().run, weakref.ref(executable)
        self._thread = threading.Thread(target=run, args=(self._run, owner), daemon=True,
                                        name="weft optimizer")
        _running.add(self)
        try:
            self._thread.start()
        except RuntimeError as error:  # the process has too many threads, or it ends
            self._give_up(error)
            self._close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; whether the faster code is in place."""
        if self.is_running:
            self._done.wait(timeout)
        return self._done.is_set() and self.error is None and self.code is not None

    @property
    def is_running(self) -> bool:
        """Whether the thread works in this process, not in the one that this was forked from."""
        return os.getpid() == self._process and not self._done.is_set()

    @property
    def text(self) -> str:
        """The state, for ``explain``."""
        if self.error is not None:
            return f"fast: the optimised code could not be made ({self.error})"
        if self.wait(0):
            return "full: the optimised code has replaced that of the tier fast"
        return "fast: the optimised code is being made" if self.is_running else \
            "fast: the process ended or was forked before the optimised code was made"

    def _run(self, owner: weakref.ref[Executable]) -> None:
        try:
            with _step:
                if _ending.is_set():
                    return
                code = self._make()
            with _step:
                executable = owner()
                if executable is not None and not _ending.is_set():
                    executable.continue_with(self._load(code))
            self.code = code
        except BaseException as error:  # noqa: BLE001 - the executable answers without it
            self._give_up(error)
        finally:
            self._close()

    def _give_up(self, error: BaseException) -> None:
        self.error = error
        if not _ending.is_set():  # when no thread starts any more
            logger("compiler").warning("the optimised code of %s could not be made, so calls "
                                       "stay slower: %s", self._what, error)

    def _close(self) -> None:
        del self._make, self._load  # which hold the program
        self._done.set()

    def end(self) -> None:
        """Wait for the current step."""
        if self._thread is not None and self.is_running:
            self._thread.join()


def _end_all() -> None:
    """End the threads before the interpreter ends: one in machine code would go on beside it."""
    _ending.set()
    for one in list(_running):
        one.end()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_step.acquire, after_in_parent=_step.release,
                        after_in_child=_step.release)
