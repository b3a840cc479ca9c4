"""What weft does instead of what was asked for: one record, one warning, one place to look.

A part of the compiler that changes its plan calls ``report``. The record goes to the log of the
compilation or module in whose context it runs (``recording``), and is warned of once per log;
with ``strict`` it is refused. ``mod.explain()`` lists the log, which also travels with compiled
code to the disk cache and to artifacts. An ``InternalError`` is never a reason for a fallback, and
a tool that is not installed is an error.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from weft.support.dataclass import dataclass
from weft.support.errors import StrictError, WeftError
from weft.support.fork_locks import renew_in_child

_PACKAGE = str(Path(__file__).resolve().parents[1])


class FallbackWarning(UserWarning):
    """weft does something slower, or elsewhere, than what was asked for.

    ``fallback`` is the record; its text is the message.
    """

    def __init__(self, message: str = "", fallback: Fallback | None = None) -> None:
        super().__init__(message)
        self.fallback = fallback


@dataclass(frozen=True, slots=True)
class Fallback:
    """A change of plan.

    ``what`` is what weft does instead, and names the operator and the dimension or tensor;
    ``cause`` is why; ``cost`` is what it costs, with a figure where one is known; ``cure`` is what
    the user can type to get the plan that was asked for. One that is ``listed_only`` is neither
    warned of nor refused: a setting or the language of the program asks for it, or it costs nothing
    beside another record.
    """

    what: str
    cause: str
    cost: str
    cure: str
    listed_only: bool = False

    def text(self) -> str:
        """The record as shown to the user, one field per line."""
        return (f"{self.what}\n  because: {self.cause}\n  cost: {self.cost}\n  cure: {self.cure}")


class FallbackLog:
    """The changes of plan of one compilation or one module, in order, each once.

    ``add`` also adds to ``parent``, the log of what this one is part of. ``known`` are changes that
    were reported before. With ``strict``, ``report`` refuses changes; with ``is_trial`` it does not
    warn: the plan is an attempt. Several threads may use it.
    """

    def __init__(self, known: Sequence[Fallback] = (), *, strict: bool = False,
                 parent: FallbackLog | None = None, is_trial: bool = False) -> None:
        self.strict = strict or (parent is not None and parent.strict)
        self.is_trial = is_trial or (parent is not None and parent.is_trial)
        self._parent = parent
        self._found = dict.fromkeys(known, 1)
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    @property
    def found(self) -> tuple[Fallback, ...]:
        """The changes so far, in order."""
        with self._lock:
            return tuple(self._found)

    @property
    def counts(self) -> dict[Fallback, int]:
        """How often each change was reported."""
        with self._lock:
            return dict(self._found)

    def add(self, fallback: Fallback) -> bool:
        """Add a change of plan; whether it is new to this log and to those it is part of."""
        with self._lock:
            is_new = fallback not in self._found
            self._found[fallback] = self._found.get(fallback, 0) + 1
        return self._parent.add(fallback) and is_new if self._parent is not None else is_new


_log: ContextVar[FallbackLog | None] = ContextVar("weft_fallbacks", default=None)


@contextmanager
def recording(log: FallbackLog | None = None, *, strict: bool = False) -> Iterator[FallbackLog]:
    """Collect what the block reports, in ``log`` or in a new log, which is part of the current one.

    ``strict`` is that of the new log; one that is part of a strict log is strict too.
    """
    current = log if log is not None else FallbackLog(strict=strict, parent=_log.get())
    token = _log.set(current)
    try:
        yield current
    finally:
        _log.reset(token)


def module_log(known: Sequence[Fallback]) -> FallbackLog:
    """The log of the calls of a module whose compilation reported ``known``.

    It is part of the log of the context, as strict as that one.
    """
    return FallbackLog(known, parent=_log.get())


def report(fallback: Fallback, log: FallbackLog | None = None) -> None:
    """Add a change of plan to ``log``, or to the log of the context, and warn if it is new there.

    Raises ``StrictError`` instead if the log is strict.
    """
    log = log if log is not None else _log.get()
    if log is not None and log.strict and not fallback.listed_only:
        raise refusal(fallback)
    is_new = log is None or (log.add(fallback) and not log.is_trial)
    if is_new and not fallback.listed_only:
        warnings.warn(FallbackWarning(fallback.text(), fallback), stacklevel=_depth())


def report_all(fallbacks: Sequence[Fallback]) -> None:
    """Report what an earlier compilation reported, as its code is used again."""
    for fallback in fallbacks:
        report(fallback)


def refusal(fallback: Fallback) -> StrictError:
    """The error of ``strict=True`` for a change of plan."""
    return StrictError(f"strict=True refuses a change of plan: {fallback.what}",
                       got=fallback.cause, notes=[f"cost: {fallback.cost}"],
                       help=f"{fallback.cure}; or compile without strict=True")


def reason_of(error: BaseException) -> str:
    """An error as the cause of a fallback, in one line."""
    if isinstance(error, WeftError):
        got = "" if error.got is None else f" (got {error.got})"
        where = "" if error.where is None else f", at {error.where}"
        return " ".join(f"{error.what}{got}{where}".split())
    return " ".join(f"{type(error).__name__}: {error}".split())


def _depth() -> int:
    """The ``stacklevel`` of the innermost frame outside of weft, for the caller of this."""
    frame, depth = sys._getframe(1), 1  # noqa: SLF001 - as warnings finds the frame
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    return depth


def _is_inside(file: str) -> bool:
    return file.startswith(_PACKAGE) or file.endswith(("contextlib.py", "threading.py"))
