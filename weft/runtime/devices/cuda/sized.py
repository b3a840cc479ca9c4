"""Programs for a device that run at all sizes of their symbols."""

from __future__ import annotations

from weft.runtime.devices.cuda.module import DeviceModule
from weft.runtime.sized_module import AtSizes, SharedCode


class SharedOnDevice(SharedCode, DeviceModule):
    """The code of a program with symbols for a device."""


class AtSizesOnDevice(AtSizes, DeviceModule):
    """The module for the sizes of a call of a program for a device."""
