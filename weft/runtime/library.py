"""Machine code that a module runs: something that knows the addresses of its symbols."""

from __future__ import annotations

import ctypes
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from weft.support.errors import ArtifactError


class Library(Protocol):
    """Loaded code, in place for as long as the object lives."""

    def address(self, symbol: str) -> int:
        """Where a function is; raises a ``WeftError`` if there is none of that name."""
        ...


class SharedLibrary:
    """A shared object that the system's loader has mapped, unmapped when the object goes.

    ``descriptor`` is a file to be closed with it. ``ArtifactError`` where the loader refuses.
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int | None = None) -> None:
        self.path = os.fspath(path)
        # Everything is resolved now, so that no call can end the process for a missing symbol.
        mode = os.RTLD_NOW | os.RTLD_LOCAL
        try:
            self._code = ctypes.CDLL(self.path, mode=mode)
        except OSError as error:
            raise ArtifactError("the system cannot load the compiled code", got=error) from None
        handle = self._code._handle  # noqa: SLF001 - ctypes has no other way to name it
        closing = weakref.finalize(self, _close, handle, descriptor)
        # Threads may still be running code when the process ends: nothing is unmapped then.
        setattr(closing, "atexit", False)  # noqa: B010 - a property that the type stubs lack

    @staticmethod
    def from_bytes(code: bytes | memoryview) -> SharedLibrary:
        """Map a shared object that is in memory, without leaving a file behind."""
        try:
            descriptor = os.memfd_create("weft", os.MFD_CLOEXEC)
        except (OSError, AttributeError):
            return _from_temporary_file(code)
        try:
            _write_all(descriptor, code)
            # The loader knows libraries by path, so the number stays taken while this one lives.
            return SharedLibrary(f"/proc/self/fd/{descriptor}", descriptor)
        except ArtifactError:
            # Some systems forbid code in such files; one on disk gives the final verdict.
            os.close(descriptor)
            return _from_temporary_file(code)

    def address(self, symbol: str) -> int:
        """Where a function is; ``ArtifactError`` if the code does not define it."""
        try:
            found = ctypes.cast(getattr(self._code, symbol), ctypes.c_void_p).value
        except AttributeError:
            found = None
        if found is None:
            raise ArtifactError(f"the compiled code does not define {symbol!r}")
        return found


def function(library: Library, symbol: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A symbol as a Python callable of these ctypes types; calling it releases Python's lock."""
    return ctypes.CFUNCTYPE(result, *arguments)(library.address(symbol))


def _from_temporary_file(code: bytes | memoryview) -> SharedLibrary:
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder) / "lib.so"
        path.write_bytes(code)
        return SharedLibrary(path)


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _close(handle: int, descriptor: int | None) -> None:
    _dlclose(handle)
    if descriptor is not None:
        os.close(descriptor)


_dlclose = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(("dlclose", ctypes.CDLL(None)))
