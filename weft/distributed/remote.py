"""Modules on a machine elsewhere: files go there, calls and times come back."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from statistics import mean, median
from types import TracebackType
from typing import Any, Self

from weft.distributed.executors.dask_executor import PATIENCE, Dask
from weft.runtime.executors import Call, Worker
from weft.runtime.executors.remote_host import close_session, open_session, request
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, RunTimeoutError, WeftError, WorkerError

_POLL = 1.0  # seconds between looks at whether the worker is still there


def connect(address: str | None = None, *, worker: str | None = None, patience: float = PATIENCE,
            timeout: float | None = None) -> RemoteSession:
    """A session on a worker of Dask's scheduler at ``address``, or on a new one of this machine.

    ``worker`` is the name of one of its ``devices``; by default the first. ``timeout`` limits each
    request, in seconds. Raises ``WorkerError`` within ``patience`` seconds without an
    answer.
    """
    executor = Dask(address, workers=None if address else 1, patience=patience)
    try:
        return RemoteSession(executor, worker, timeout)
    except BaseException:
        executor.shutdown()
        raise


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of a call: one value for each repeat."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.results)

    @property
    def median(self) -> float:
        return median(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)


class RemoteSession:
    """Files and modules on one worker, until ``close`` or the end of ``with``."""

    def __init__(self, executor: Dask, worker: str | None, timeout: float | None) -> None:
        self._executor, self._timeout = executor, timeout
        self.devices: tuple[Worker, ...] = executor.workers()
        Call(request, worker=worker).check(self.devices)
        self.device = next(w for w in self.devices if worker in (None, w.name))
        self._session = uuid.uuid4().hex
        self._is_open = True
        self._run(open_session, self._session)

    def upload(self, file: str | os.PathLike[str] | bytes, name: str | None = None) -> str:
        """Copy a file, or bytes with a ``name``, to the worker; the name that it has there."""
        if isinstance(file, bytes):
            if name is None:
                raise OptionError("bytes need a name", help='upload(data, "net.weft")')
            data = file
        else:
            try:
                data = Path(file).read_bytes()
            except OSError as error:
                raise OptionError("the file cannot be read", where=file,
                                  got=error.strerror) from None
        name = name or Path(os.fspath(file)).name  # type: ignore[arg-type]
        self._request("upload", name, data)
        return name

    def download(self, name: str) -> bytes:
        """The bytes of a file on the worker."""
        return self._request("download", name)

    def remove(self, name: str) -> None:
        """Delete a file on the worker."""
        self._request("remove", name)

    def files(self) -> dict[str, int]:
        """The files on the worker, and their sizes."""
        return self._request("files")

    def load_module(self, name: str) -> RemoteModule:
        """The module of an artifact that was uploaded; ``WorkerError`` if it does not fit."""
        inputs, outputs = self._request("load", name)
        return RemoteModule(self, name, tuple(inputs), tuple(outputs))

    def close(self) -> None:
        """Forget the files and leave the scheduler."""
        if self._is_open:
            with suppress(WeftError):
                self._run(close_session, self._session)
        self._is_open = False
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _request(self, method: str, *args: Any) -> Any:
        if not self._is_open:
            raise WorkerError("the remote session is closed")
        return self._run(request, self._session, method, *args)

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on the worker; ``WorkerError`` if that is lost meanwhile."""
        try:
            future = self._executor.run(Call(function, args, worker=self.device.name))
        except WorkerError as error:  # the scheduler knows no worker of that name any more
            raise self._lost() from error
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not wait([future], _POLL).done:
            if until is not None and time.monotonic() > until:
                self._executor.cancel([future])
                raise RunTimeoutError("a remote request took too long", where=self.device.address,
                                      expected=f"at most {self._timeout:g} s")
            if all(worker.address != self.device.address for worker in self._executor.workers()):
                self._executor.cancel([future])
                raise self._lost()
        return future.result()

    def _lost(self) -> WorkerError:
        return WorkerError("the worker of a remote session was lost", where=self.device.address,
                           help="connect again; files have to be uploaded again")


class RemoteModule:
    """A module on the worker of a session; calls take and give NumPy arrays."""

    def __init__(self, session: RemoteSession, name: str, inputs: Sequence[Any],
                 outputs: Sequence[Any]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._session, self._name = session, name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._session._request("call", self._name, args, kwargs)  # noqa: SLF001

    def time(self, /, *args: Any, repeat: int = 5, number: int = 1, min_seconds: float = 0.0,
             **kwargs: Any) -> Times:
        """The seconds of a call there, without the way: ``repeat`` averages of ``number`` calls.

        ``number`` grows until each repeat takes ``min_seconds``.
        """
        if repeat < 1 or number < 1:
            raise OptionError("repeat and number are at least 1", got=f"{repeat} and {number}")
        return Times(tuple(self._session._request(  # noqa: SLF001 - one class in two
            "seconds", self._name, args, kwargs, repeat, number, min_seconds)))
