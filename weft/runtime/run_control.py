"""Limits of a run: a time limit, cancellation from another thread, and the record of its steps.

A run with limits goes step by step instead of through the generated main function: between two
kernels it asks whether to go on, so a kernel that runs is never interrupted, and runs without
limits cost what they did. A run that ends early leaves the state of the module as it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.runtime.state import State
from weft.support.errors import OptionError, RunCancelledError, RunTimeoutError, WeftError

if TYPE_CHECKING:
    from weft.runtime.profile import StepTime
    from weft.runtime.step_trace import StepTrace


class CancellationToken:
    """Cancels the runs whose ``RunControl`` has it, by ``token.cancel()``.

    Any thread may cancel. A token stays cancelled; ``child`` makes one that is cancelled with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._count = 0

    @property
    def is_cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """The argument of ``cancel``."""
        return self._reason

    def cancel(self, reason: str = "cancelled") -> None:
        """Let the runs stop before their next kernel; ``reason`` is part of their error."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and may be cancelled alone."""
        made = CancellationToken()
        self.when_cancelled(lambda: made.cancel(self._reason or "cancelled"))
        return made

    def when_cancelled(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once when this is cancelled, or now; gives what takes it back."""
        with self._lock:
            if self._reason is None:
                self._count += 1
                number = self._count
                self._callbacks[number] = callback
                return lambda: self._forget(number)
        callback()
        return lambda: None

    def _forget(self, number: int) -> None:
        with self._lock:
            self._callbacks.pop(number, None)


class RunControl:
    """The limits of one run, which starts now. ``timeout`` is in seconds."""

    def __init__(self, timeout: float | None = None, cancel: CancellationToken | None = None, *,
                 is_traced: bool = False) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not timeout > 0):
            raise OptionError("invalid timeout", expected="seconds, above 0", got=repr(timeout))
        self._timeout = timeout
        self._start = time.perf_counter()
        self._deadline = None if timeout is None else self._start + timeout
        self._token = cancel
        self.times: list[StepTime] | None = [] if is_traced else None

    def check(self) -> None:
        """Raise ``RunCancelledError`` or ``RunTimeoutError`` if the run is to end."""
        token = self._token
        if token is not None and token.is_cancelled:
            raise self._cancelled()
        if self._deadline is not None and time.perf_counter() >= self._deadline:
            raise self._late()

    @contextmanager
    def interrupting(self, stop: Callable[[WeftError], None]) -> Iterator[None]:
        """Call ``stop`` from another thread when the run is to end, while the context is open."""
        self.check()
        forget = (lambda: None) if self._token is None else self._token.when_cancelled(
            lambda: stop(self._cancelled()))
        timer = None
        if self._deadline is not None:
            rest = max(0.0, self._deadline - time.perf_counter())
            timer = threading.Timer(rest, lambda: stop(self._late()))
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            forget()
            if timer is not None:
                timer.cancel()

    @contextmanager
    def holding(self, state: State) -> Iterator[None]:
        """Hold the lock of a module's state; if the run fails, the state is as before."""
        self.check()
        if not state:
            yield
            return
        self.acquire(state.lock)
        try:
            kept = {name: array.copy() for name, array in state.items()}
            try:
                yield
            except BaseException:
                for name, array in kept.items():
                    state[name] = array
                raise
        finally:
            state.lock.release()

    def acquire(self, lock: threading.Lock) -> None:
        while not lock.acquire(timeout=_POLL_SECONDS):
            self.check()

    def step_trace(self) -> StepTrace:
        """The steps that ran, with times from the start of the run."""
        from weft.runtime.step_trace import StepTrace  # most runs are not traced

        return StepTrace.of(self.times or (), self._start)

    def _cancelled(self) -> RunCancelledError:
        reason = None if self._token is None else self._token.reason
        return RunCancelledError("the run was cancelled", got=reason)

    def _late(self) -> RunTimeoutError:
        return RunTimeoutError("the run took longer than its timeout",
                               expected=f"at most {self._timeout} s")


# How often a run that waits for the state of a module looks at its limits.
_POLL_SECONDS = 0.01
