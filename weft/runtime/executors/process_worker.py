"""The child's side of a process executor: calls in, results out, until the pipe is closed."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from weft.runtime.executors.base import Call, Shared
from weft.support.dataclass import dataclass
from weft.support.errors import WorkerError


def main(descriptor: int, cores: tuple[int, ...]) -> None:
    """Serve the pipe with this descriptor, on these CPUs (all if empty)."""
    if cores:
        with suppress(OSError):  # a quota has changed: the calls run anyway
            os.sched_setaffinity(0, cores)
    connection: Connection = Connection(descriptor)
    shared = SharedValues()
    try:
        connection.send(None)  # from now on the time of calls counts
        while True:
            digest = connection.recv()
            message = connection.recv_bytes()
            if digest:
                shared.add(digest, message)
            else:
                connection.send_bytes(answer(message, shared))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        sys.exit(0)


@dataclass(frozen=True, slots=True)
class Reference:
    """Stands for a shared argument in a message."""

    digest: str


class SharedValues(dict[str, Any]):
    """Shared arguments by digest, unpickled at their first use.

    By then the function of a call is imported, and with it what its arguments need.
    """

    def __init__(self) -> None:
        self._pickled: dict[str, bytes] = {}
        self._lock = threading.RLock()  # a worker of Dask may have several threads

    def add(self, digest: str, data: bytes) -> None:
        """Keep a value as it came."""
        if digest not in self:
            self._pickled[digest] = data

    def __missing__(self, digest: str) -> Any:
        with self._lock:
            if digest not in self:
                self[digest] = pickle.loads(self._pickled[digest])  # noqa: S301 - from our parent
                del self._pickled[digest]
            return self[digest]


def message_of(call: Call, dumps: Callable[..., bytes] = pickle.dumps) -> bytes:
    """A call as bytes, without its shared arguments; ``WorkerError`` if it does not pickle."""
    args = [Reference(a.digest) if isinstance(a, Shared) else a for a in call.args]
    try:
        return dumps((call.function, args, dict(call.kwargs)), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise WorkerError(f"the call {call} cannot be sent to a process", got=error,
                          expected="a function at the top of a module, values that pickle"
                          ) from error


def result_of(message: bytes, shared: Mapping[str, Any]) -> Any:
    """Run the call of a message."""
    function, args, kwargs = pickle.loads(message)  # noqa: S301 - from our parent
    return function(*[shared[a.digest] if isinstance(a, Reference) else a for a in args], **kwargs)


def answer(message: bytes, shared: Mapping[str, Any]) -> bytes:
    """The pickled pair of whether a call gave a result, and its result or error."""
    try:
        pair: tuple[bool, Any] = True, result_of(message, shared)
    except Exception as error:  # noqa: BLE001 - the caller's future raises it
        pair = False, error
    try:
        data = pickle.dumps(pair, protocol=pickle.HIGHEST_PROTOCOL)
        if not pair[0]:
            pickle.loads(data)  # noqa: S301 - some exceptions pickle and do not unpickle
        return data
    except Exception as error:  # noqa: BLE001 - whatever pickling a user's object raises
        what = "a result" if pair[0] else "an error"
        return pickle.dumps((False, WorkerError(
            f"{what} of a call cannot be sent back: {type(pair[1]).__name__}",
            got=error if pair[0] else pair[1])))
