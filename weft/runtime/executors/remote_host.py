"""The worker's side of a remote session: files, modules, and their times."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.runtime.executors.module_worker import load_module
from weft.support.errors import InvalidInputError, WorkerError

_sessions: dict[str, RemoteHost] = {}


def open_session(session: str) -> None:
    """Make the files of a session."""
    _sessions[session] = RemoteHost()


def close_session(session: str) -> None:
    """Forget the files of a session."""
    _sessions.pop(session, None)


def request(session: str, method: str, *args: Any) -> Any:
    """Call a method of the host of a session; ``WorkerError`` where another process had it."""
    if session not in _sessions:
        raise WorkerError("the worker of a remote session was lost",
                          help="connect again; files have to be uploaded again")
    return getattr(_sessions[session], method)(*args)


class RemoteHost:
    """Files in a folder of its own, which ends with it, and the modules that they hold."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-remote-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._modules: dict[str, Any] = {}

    def upload(self, name: str, data: bytes) -> int:
        """Keep a file; the number of its bytes."""
        self._modules.pop(name, None)
        return self._path(name).write_bytes(data)

    def download(self, name: str) -> bytes:
        """The bytes of a file."""
        return self._existing(name).read_bytes()

    def remove(self, name: str) -> None:
        """Forget a file and its module."""
        self._modules.pop(name, None)
        self._existing(name).unlink()

    def files(self) -> dict[str, int]:
        """The size of each file."""
        return {path.name: path.stat().st_size for path in sorted(self._folder.iterdir())}

    def load(self, name: str) -> tuple[list[Any], list[Any]]:
        """Open the module of a file; the descriptions of its inputs and outputs."""
        module = load_module(self._existing(name))
        if not hasattr(module, "inputs"):
            raise WorkerError("the file holds no single module", where=name,
                              got=type(module).__name__)
        self._modules[name] = module
        return list(module.inputs), list(module.outputs)

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The outputs of a module."""
        return self._module(name)(*args, **kwargs)

    def seconds(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], repeat: int,
                number: int, min_seconds: float) -> list[float]:
        """The seconds of a call, ``repeat`` times: averages of ``number`` calls.

        ``number`` grows until a repeat takes ``min_seconds``. A first call is not timed.
        """
        module = self._module(name)
        module(*args, **kwargs)
        times: list[float] = []
        while len(times) < repeat:
            start = time.perf_counter()
            for _ in range(number):
                module(*args, **kwargs)
            took = time.perf_counter() - start
            if took < min_seconds:
                number = max(2 * number, int(number * 1.2 * min_seconds / max(took, 1e-9)))
                continue
            times.append(took / number)
        return times

    def _module(self, name: str) -> Any:
        if name not in self._modules:
            raise InvalidInputError(f"no module {name!r} is loaded", where="a remote session",
                                    expected=", ".join(self._modules) or None)
        return self._modules[name]

    def _path(self, name: str) -> Path:
        if not name or name in (".", "..") or Path(name).name != name:
            raise InvalidInputError("a remote file has a plain name", got=name)
        return self._folder / name

    def _existing(self, name: str) -> Path:
        path = self._path(name)
        if not path.is_file():
            raise InvalidInputError(f"no file {name!r} was uploaded", where="a remote session",
                                    expected=", ".join(self.files()) or None)
        return path
