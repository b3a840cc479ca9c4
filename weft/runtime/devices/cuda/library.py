"""``CudaLibrary``: the code of a program for a GPU, with the parts that run on the host."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence

from weft.runtime.device import HOST, Device
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary, loads_objects
from weft.runtime.devices.cuda.bundle import Bundle
from weft.runtime.devices.cuda.context import DeviceContext, context_of
from weft.runtime.devices.cuda.errors import status_error
from weft.runtime.devices.cuda.image import KernelObject
from weft.runtime.devices.cuda.kernel import LoadedKernel, PreparedLaunch
from weft.runtime.library import Block, Kernel, NativeLibrary, SharedLibrary
from weft.support.config import config
from weft.support.errors import ArtifactError, WeftError

# Launches that errors found later are said to come from.
_NAMED_LAUNCHES = 8


class CudaLibrary:
    """Kernels of a program by symbol, on device ``number``.

    The device is opened when it is first needed, by the driver that ``weft.config(cuda=...)``
    selected when the library was made: a program can be compiled and exported without a device.
    ``host`` has the kernels that run on the host, ``launcher`` the host launcher. With
    ``is_checked`` (``WEFT_CUDA_SYNC=1``) the host waits for each launch. Raises ``NoDeviceError``
    where the device is needed and missing.
    """

    def __init__(self, kernels: Iterable[KernelObject], host: NativeLibrary | None = None,
                 launcher: NativeLibrary | None = None, number: int = 0) -> None:
        self.host = host
        self.launcher = launcher
        self._kernels = {kernel.symbol: kernel for kernel in kernels}
        self._number = number
        self._driver_setting = config.cuda
        self._loaded: dict[str, LoadedKernel] = {}
        self._recent: deque[Sequence[PreparedLaunch]] = deque(maxlen=_NAMED_LAUNCHES)
        self.is_checked = config.cuda_sync

    @staticmethod
    def from_bundle(code: bytes | memoryview) -> CudaLibrary:
        """The library of an artifact; ``ArtifactError`` for damaged code."""
        parts = Bundle.unpack(code)
        return CudaLibrary(map(KernelObject.from_bytes, parts.kernels), host_library(parts),
                           launcher_library(parts))

    @functools.cached_property
    def context(self) -> DeviceContext:
        """The device; ``NoDeviceError`` if there is no driver or no device."""
        with config(cuda=self._driver_setting):
            return context_of(self._number)

    def loaded(self, symbol: str) -> LoadedKernel:
        """A kernel for the device; ``ArtifactError`` if the library does not define it."""
        found = self._loaded.get(symbol)
        if found is None:
            code = self._kernels.get(symbol)
            if code is None:
                raise ArtifactError(f"the compiled code does not define {symbol!r}")
            found = self._loaded.setdefault(symbol, LoadedKernel(code, self.context))
        return found

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0) -> Kernel:
        """See ``Library.kernel``; kernels of the host return when they are done."""
        if device == HOST:
            if self.host is None:
                raise ArtifactError(f"the compiled code does not define {symbol!r} for the host")
            return self.host.kernel(symbol, num_args)
        loaded = self.loaded(symbol)
        where = stream or self.context.compute

        def launch(*arguments: int) -> None:
            for prepared in loaded.launches(arguments):
                self.launch(prepared, where)

        return launch

    def launch(self, prepared: PreparedLaunch, stream: int) -> None:
        """Launch a kernel; errors of the call name it, with its geometry."""
        driver = self.context.driver
        self.note((prepared,))
        try:
            driver.launch(prepared.function, prepared.geometry, prepared.parameters, stream)
            if self.is_checked:
                driver.synchronize(stream)
        except WeftError as error:
            self._recent.clear()
            raise error.at(prepared.name, str(prepared.geometry)) from None

    def note(self, launches: Sequence[PreparedLaunch]) -> None:
        """Remember launches, which errors found later may come from."""
        self._recent.append(launches)

    def launch_error(self, status: int, failed: PreparedLaunch) -> WeftError:
        """The error of a launch that the driver refused."""
        self._recent.clear()
        return status_error(status, "launching a kernel").at(failed.name, str(failed.geometry))

    def allocate(self, nbytes: int, device: Device, alignment: int) -> Block:  # noqa: ARG002
        """Memory of the device, aligned to 512 bytes, for work on the compute stream."""
        return self.context.memory.allocate(nbytes, self.context.compute)

    def synchronize(self) -> None:
        """Wait for the compute stream; errors name the launches since the last time."""
        if "context" not in self.__dict__:
            return  # nothing was launched
        try:
            self.context.driver.synchronize(self.context.compute)
        except WeftError as error:
            raise self.named(error) from None
        finally:
            self._recent.clear()

    def synchronize_event(self, event: int) -> None:
        """Wait for an event; errors name the launches since the last time all were done."""
        try:
            self.context.driver.synchronize_event(event)
        except WeftError as error:
            raise self.named(error) from None

    def named(self, error: WeftError) -> WeftError:
        """An error that the device reported late, with the launches that it may come from."""
        if not self._recent:
            return error
        launches = [one for several in self._recent for one in several]
        notes = [f"launched before: {p.name} ({p.geometry})" for p in launches[-_NAMED_LAUNCHES:]]
        return error.at(None, *notes, "WEFT_CUDA_SYNC=1 finds the launch that failed")


def host_library(parts: Bundle) -> NativeLibrary | None:
    """The kernels of a program that run on the host; ``None`` if there are none."""
    if parts.shared:
        return SharedLibrary.from_bytes(parts.shared)
    return ObjectLibrary(parts.host) if parts.host else None


def launcher_library(parts: Bundle) -> NativeLibrary | None:
    """The host launcher, where the runtime can link it."""
    return ObjectLibrary([parts.launcher]) if parts.launcher and loads_objects() else None
