"""The devices of this process: one driver, and one ``DeviceContext`` per device.

All modules and arrays of a device share its compute stream, so work on it is ordered as the host
issued it. Copies that overlap with it run on two further streams.
"""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

from weft.runtime.device import Device
from weft.runtime.devices.cuda.allocator import CachingAllocator
from weft.runtime.devices.cuda.driver import DeviceProperties, Driver
from weft.runtime.devices.cuda.errors import NoDeviceError
from weft.runtime.devices.cuda.nvidia import NvidiaDriver
from weft.support.config import config

KIND = "cuda"
EMULATE = "emulate"


class DeviceContext:
    """One device of a driver.

    ``compute`` is the stream of kernels, ``upload`` and ``download`` are those of overlapping
    copies. Graphs are recorded on the stream ``capture``, one at a time (``capturing``): work that
    another thread puts on the compute stream meanwhile is not recorded.
    """

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.device = Device(KIND, number)
        driver.activate(number)
        self.properties: DeviceProperties = driver.properties(number)
        self.memory = CachingAllocator(driver, number)
        self.compute = driver.create_stream()
        self.upload = driver.create_stream()
        self.download = driver.create_stream()
        self.capture = driver.create_stream()
        self.capturing = threading.Lock()

    def activate(self) -> None:
        """Make the device current for the calling thread."""
        self.driver.activate(self.device.number)

    def __repr__(self) -> str:
        major, minor = self.properties.capability
        return f"<{self.device}: {self.properties.name}, compute capability {major}.{minor}>"


def current_driver() -> Driver:
    """The driver that ``weft.config(cuda=...)`` selects; ``NoDeviceError`` if there is none."""
    return _emulated() if config.cuda == EMULATE else _nvidia()


def context_of(number: int = 0) -> DeviceContext:
    """The context of a device of the current driver.

    Raises ``NoDeviceError`` if there is no driver or no such device.
    """
    return _context(current_driver(), number)


_lock = threading.Lock()


@functools.cache
def _made(driver: Driver, number: int) -> DeviceContext:
    return DeviceContext(driver, number)


def _context(driver: Driver, number: int) -> DeviceContext:
    with _lock:
        count = driver.device_count()
        if count == 0:
            raise NoDeviceError("no CUDA device", help="check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                                "or set WEFT_CUDA=emulate to run kernels on the CPU by emulation")
        if not 0 <= number < count:
            raise NoDeviceError(f"no device cuda:{number}", expected=f"0 to {count - 1}")
        return _made(driver, number)


@functools.cache
def _nvidia() -> NvidiaDriver:
    return NvidiaDriver()


@functools.cache
def _emulated() -> Driver:
    # Found by name: the runtime does not import what tests stand on.
    emulated: Any = importlib.import_module("weft.testing.cuda.emulated")
    driver: Driver = emulated.EmulatedDriver()
    return driver
