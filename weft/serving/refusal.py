"""Requests that the server refuses, with the HTTP status that says why."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.support.errors import (
    AllocationError,
    InvalidInputError,
    OptionError,
    RunTimeoutError,
    WeftError,
    WorkerError,
)

OVERLOADED = "the server is overloaded"


class RefusedError(WeftError):
    """A request that is not served; ``retry_after`` is in seconds where another try may succeed."""

    code: ClassVar[str] = "E0540"

    def __init__(self, what: str, *, status: int, retry_after: int | None = None,
                 **fields: Any) -> None:
        super().__init__(what, **fields)
        self.status = status
        self.retry_after = retry_after


def unknown_model(name: object, known: object) -> RefusedError:
    """The refusal of a request for a model that the server does not have."""
    return RefusedError("unknown model", status=404, got=name, expected=known)


def overloaded(reason: str, *, status: int = 503) -> RefusedError:
    """The refusal of a request that would only make queues and memory grow."""
    return RefusedError(OVERLOADED, status=status, retry_after=1, got=reason)


def status_of(error: BaseException) -> int:
    """The HTTP status of an error: 400 for what the client can mend, 500 for all others."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, (InvalidInputError, OptionError)):
        return 400
    if isinstance(error, (TimeoutError, RunTimeoutError)):
        return 504
    return 503 if isinstance(error, (AllocationError, WorkerError)) else 500


def retry_after_of(error: BaseException) -> int | None:
    """The seconds after which another try may succeed; ``None`` if it would fail, too."""
    if isinstance(error, RefusedError):
        return error.retry_after
    return 1 if isinstance(error, WorkerError) else None


def message_of(error: BaseException) -> str:
    """An error in one line, as bodies of responses have it."""
    if isinstance(error, TimeoutError):
        return "the request took longer than the time limit of the server"
    if not isinstance(error, WeftError):
        return "internal error; the log of the server has the details"
    parts = [error.what, error.where and f"at {error.where}",
             error.expected and f"expected {error.expected}", error.got and f"got {error.got}",
             error.help]
    return "; ".join(part for part in parts if part)
