"""Emulated global memory: allocations with guard gaps, filled with poison."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.races import Shadow

SHARED_START = 1024
SHARED_WINDOW = 0x1000_0000_0000
LOCAL_WINDOW = 0x2000_0000_0000
PARAM_WINDOW = 0x3000_0000_0000
WINDOW_BYTES = 1 << 40


POISON = 0xFF  # as a byte: NaN in every float format, -1 in every integer format
_FIRST_ADDRESS = 0x7F00_0000_0000
_GUARD = 4096
_REMEMBERED = 4096


class Region:
    """Bytes that instructions access: an allocation, or the shared or local memory of a batch."""

    def __init__(self, name: str, nbytes: int, base: int = 0, *, read_only: bool = False) -> None:
        self.name = name
        self.nbytes = nbytes
        self.base = base
        self.read_only = read_only
        self.data = np.full(-(-max(nbytes, 1) // 16) * 16, POISON, dtype=np.uint8)
        self.views = {dtype: self.data.view(dtype) for dtype in ("u1", "u2", "u4", "u8")}
        self.shadow: Shadow | None = None


class DeviceMemory:
    """The global memory of one emulated device.

    New memory holds poison. Kernels may access allocations only; gaps between them, freed memory
    and bytes past the requested size are errors.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.used = 0
        self._bases: list[int] = []
        self._regions: list[Region] = []
        self._freed: list[tuple[int, int]] = []
        self._next = _FIRST_ADDRESS
        self.module_variables: dict[int, dict[str, int]] = {}
        self.modules: list[object] = []

    def allocate(self, nbytes: int, alignment: int = 256) -> int:
        """The address of new memory of ``nbytes``; addresses are never used twice.

        Raises CudaEmulationError if ``alignment`` is not a power of two, or if the memory would
        exceed the capacity.
        """
        if nbytes < 0 or alignment <= 0 or alignment & (alignment - 1):
            raise CudaEmulationError("invalid allocation", got=f"{nbytes} bytes, alignment "
                                     f"{alignment}", expected="an alignment that is a power of two")
        if self.capacity is not None and self.used + nbytes > self.capacity:
            raise CudaEmulationError(
                "out of device memory", expected=f"at most {self.capacity - self.used} bytes",
                got=f"{nbytes} bytes")
        # Not a multiple of the next power of two: an alignment that holds by chance is no promise.
        address = -(-self._next // alignment) * alignment
        if address % (2 * alignment) == 0:
            address += alignment
        self._next = address + nbytes + _GUARD
        self._bases.append(address)
        self._regions.append(Region("global memory", nbytes, address))
        self.used += nbytes
        return address

    def free(self, address: int) -> None:
        """Release an allocation by the address that ``allocate`` gave."""
        at = bisect_right(self._bases, address) - 1
        if at < 0 or self._bases[at] != address:
            raise CudaEmulationError(f"free of {address:#x}: not an allocation",
                                     got=self.describe(address))
        region = self._regions.pop(at)
        del self._bases[at]
        self.used -= region.nbytes
        self._freed.append((address, region.nbytes))
        del self._freed[:-_REMEMBERED]

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """The bytes at ``address`` as a uint8 array over the same memory."""
        region = self.find(address)
        if region is None or address + nbytes > region.base + region.nbytes:
            raise CudaEmulationError(f"access to {nbytes} bytes at {address:#x}: out of bounds",
                                     got=self.describe(address))
        start = address - region.base
        return region.data[start : start + nbytes]

    def find(self, address: int) -> Region | None:
        """The allocation that holds ``address``; its end counts as inside if it is empty."""
        at = bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        region = self._regions[at]
        return region if address < region.base + max(region.nbytes, 1) else None

    def regions(self) -> list[Region]:
        """All allocations."""
        return list(self._regions)

    def describe(self, address: int) -> str:
        """What is at or near an address, for error messages."""
        region = self.find(address)
        if region is not None:
            return (f"{address:#x}, byte {address - region.base} of an allocation of "
                    f"{region.nbytes} bytes at {region.base:#x}")
        for base, nbytes in reversed(self._freed):
            if base <= address < base + max(nbytes, 1):
                return f"{address:#x}, byte {address - base} of freed memory of {nbytes} bytes"
        at = bisect_right(self._bases, address) - 1
        if at >= 0:
            near = self._regions[at]
            past = address - near.base - near.nbytes
            return (f"{address:#x}, {past} bytes past the end of an allocation of {near.nbytes} "
                    f"bytes at {near.base:#x}")
        return f"{address:#x}, which no allocation holds"
