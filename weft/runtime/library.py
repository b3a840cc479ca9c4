"""Loaded code: kernels by symbol, and the loaders that read the code of artifacts."""

from __future__ import annotations

import abc
import ctypes
import os
import pkgutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from weft.runtime.arena import AlignedBlock, Region
from weft.runtime.device import HOST, Device
from weft.support.errors import ArtifactError
from weft.support.registry import Registry

# Launches a kernel on the addresses of its arguments.
Kernel: TypeAlias = Callable[..., None]


class Block(Protocol):
    """Memory of a device; freed with the object."""

    @property
    def address(self) -> int: ...


class Library(Protocol):
    """Loaded code of a program, valid until the object is deleted."""

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0
               ) -> Kernel:
        """The kernel ``symbol``, launched on a stream of a device.

        A launch may return before the kernel is done; launches on a stream run in order. Raises a
        ``WeftError`` for an undefined symbol.
        """
        ...

    def allocate(self, nbytes: int, device: Device, alignment: int) -> Block:
        """Memory of a device for an arena."""
        ...

    def synchronize(self) -> None:
        """Wait until all launches are done."""
        ...


class HostLibrary(abc.ABC):
    """Code that runs on the host: memory is the process's own, and a launch is a call."""

    @abc.abstractmethod
    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0
               ) -> Kernel:
        """See ``Library.kernel``."""

    def allocate(self, nbytes: int, device: Device, alignment: int) -> AlignedBlock:
        """Memory of the process."""
        return AlignedBlock(nbytes, alignment, f"the arena of {device}")

    def synchronize(self) -> None:  # noqa: B027 - not abstract
        """Do nothing: a kernel is done when its call returns."""

    def regions(self) -> list[Region]:
        """The addresses and bytes of the code; none if the system's loader placed it."""
        return []


def synchronous(library: Library, launch: Kernel) -> Kernel:
    """``launch`` of a kernel of ``library`` that returns when the kernel is done.

    It is ``launch`` itself if the library does not define how to wait.
    """
    if type(library).synchronize is HostLibrary.synchronize:
        return launch

    def launch_and_wait(*addresses: int) -> None:
        launch(*addresses)
        library.synchronize()

    return launch_and_wait


class NativeLibrary(HostLibrary):
    """Machine code of this process: functions with addresses."""

    @abc.abstractmethod
    def address(self, symbol: str) -> int:
        """The address of a function or variable; raises a ``WeftError`` if it is undefined."""

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0  # noqa: ARG002
               ) -> Kernel:
        """See ``Library.kernel``; a call releases Python's lock."""
        return function(self, symbol, None, *[ctypes.c_void_p] * num_args)


class SharedLibrary(NativeLibrary):
    """A shared object that the system's loader has mapped, unmapped with the object.

    ``descriptor`` is a file that is closed then. Raises ``ArtifactError`` if the loader fails.
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int | None = None) -> None:
        self.path = os.fspath(path)
        # Resolve all symbols now: a missing one would end the process at its first call.
        mode = os.RTLD_NOW | os.RTLD_LOCAL
        try:
            self._code = ctypes.CDLL(self.path, mode=mode)
        except OSError as error:
            raise ArtifactError("the system cannot load the compiled code", got=error) from None
        handle = self._code._handle  # noqa: SLF001 - the only name that ctypes gives it
        closing = weakref.finalize(self, _close, handle, descriptor)
        # Threads may still run this code at exit, so it is not unmapped then.
        setattr(closing, "atexit", False)  # noqa: B010 - a property that the type stubs lack

    @staticmethod
    def from_bytes(code: bytes | memoryview) -> SharedLibrary:
        """Map the bytes of a shared object, without leaving a file behind."""
        try:
            descriptor = os.memfd_create("weft", os.MFD_CLOEXEC)
        except (OSError, AttributeError):
            return _from_temporary_file(code)
        try:
            _write_all(descriptor, code)
            # The loader identifies libraries by path, so keep the descriptor open.
            return SharedLibrary(f"/proc/self/fd/{descriptor}", descriptor)
        except ArtifactError:
            # Some systems forbid executable code in memory files: try a file on disk.
            os.close(descriptor)
            return _from_temporary_file(code)

    def address(self, symbol: str) -> int:
        """The address of a function; ``ArtifactError`` if the code does not define it."""
        try:
            found = ctypes.cast(getattr(self._code, symbol), ctypes.c_void_p).value
        except AttributeError:
            found = None
        if found is None:
            raise ArtifactError(f"the compiled code does not define {symbol!r}")
        return found


def native(library: Library) -> NativeLibrary:
    """The library; ``ArtifactError`` if it is not machine code of this process."""
    if not isinstance(library, NativeLibrary):
        raise ArtifactError("simulated devices need machine code for this CPU",
                            got=type(library).__name__)
    return library


def function(library: NativeLibrary, symbol: str, result: Any, *arguments: Any
             ) -> Callable[..., Any]:
    """A symbol as a Python callable of these ctypes types; calling it releases Python's lock."""
    return ctypes.CFUNCTYPE(result, *arguments)(library.address(symbol))


# Reads the code of an artifact, as ``Backend.link`` of the same kind of target wrote it.
Loader: TypeAlias = Callable[["bytes | memoryview"], Library]
LOADERS: Registry[Loader] = Registry("loader")


def register_loader(kind: str, loader: Loader | str) -> None:
    """Load the artifacts for targets of ``kind`` with ``loader``.

    A text "module:function" is imported with the first artifact: programs for CPUs do without the
    runtime of other devices. Raises ``RegistryError`` for a kind that has a loader.
    """
    LOADERS.register(kind, _named_loader(loader) if isinstance(loader, str) else loader)


def _named_loader(where: str) -> Loader:
    def load(code: bytes | memoryview) -> Library:
        found: Loader = pkgutil.resolve_name(where)
        return found(code)

    return load


register_loader("cpu", SharedLibrary.from_bytes)
register_loader("cuda", "weft.runtime.devices.cuda.library:CudaLibrary.from_bundle")


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
