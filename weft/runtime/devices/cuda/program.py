"""A program on its device: what all calls and all sizes of it share."""

from __future__ import annotations

import functools

import numpy as np

from weft.runtime.arena import ArenaPool, address_of
from weft.runtime.devices.cuda.buffer_uses import uses_on
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.devices.cuda.resident import DeviceConstants, DeviceState
from weft.runtime.manifest import Manifest


class DeviceProgram:
    """``constants`` are the bytes that the manifest's offsets point into.

    The device is opened when ``context`` is first read.
    """

    def __init__(self, manifest: Manifest, library: CudaLibrary, constants: np.ndarray) -> None:
        self.manifest = manifest
        self.library = library
        self.host_constants = constants
        self.host_constants_address = address_of(constants)
        self.host_arenas = ArenaPool()
        self.on_host = uses_on(manifest, host=True)
        self.on_device = uses_on(manifest, host=False)

    @functools.cached_property
    def context(self) -> DeviceContext:
        """The device; ``NoDeviceError`` if there is none."""
        return self.library.context

    @functools.cached_property
    def constants(self) -> DeviceConstants:
        """The constants on the device, uploaded at the first use."""
        self.context.activate()
        return DeviceConstants(self.manifest, self.on_device, self.host_constants, self.context)

    @functools.cached_property
    def state(self) -> DeviceState:
        """The tensors that the program keeps from call to call."""
        state = DeviceState(self.manifest, self.on_device, self.context)
        state.start(self.manifest.initial, self.host_constants)
        return state
