"""Python functions that compiled code calls, and the errors that they raise meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, WeftError


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of a Python function; ``when`` is the time in ns (``time.monotonic_ns``)."""

    when: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Callback:
    """A Python function with an address, which ``pointer`` keeps valid.

    Exceptions must not propagate through compiled code. ``errors`` keeps the first one of each
    thread until the compiled code has returned.
    """

    name: str
    pointer: Any
    errors: threading.local

    def exchange(self, failure: Failure | None) -> Failure | None:
        """The failure of this thread, which ``failure`` replaces."""
        waiting: Failure | None = getattr(self.errors, "first", None)
        self.errors.first = failure
        return waiting


@contextmanager
def errors_raised(callbacks: Sequence[Callback]) -> Iterator[None]:
    """After compiled code has run in the block, raise the error of its Python functions.

    If several failed, raise the earliest error, because later functions ran on its incomplete
    results; an interrupt takes precedence over errors. All are cleared, so that the next call
    starts clean. A function may call its own module, so the errors of an outer call are saved and
    restored.
    """
    outer = [callback.exchange(None) for callback in callbacks]
    try:
        yield
    finally:
        failed = [(callback, failure) for callback, kept in zip(callbacks, outer, strict=True)
                  if (failure := callback.exchange(kept)) is not None]
    if failed:
        callback, failure = min(failed, key=lambda f: (isinstance(f[1].error, Exception),
                                                       f[1].when))
        _raise(callback.name, failure.error)


def _raise(name: str, error: BaseException) -> NoReturn:
    if isinstance(error, WeftError) or not isinstance(error, Exception):
        raise error  # KeyboardInterrupt is not wrapped
    raise CodegenError(f"the Python code of {name} failed",
                       got=f"{type(error).__name__}: {error}") from error
