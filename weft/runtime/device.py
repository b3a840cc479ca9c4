"""Devices, and the memory spaces that programs plan."""

from __future__ import annotations

from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """What runs a kernel: device ``number`` of a kind of target. The host is ``cpu`` 0."""

    kind: str = "cpu"
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


HOST = Device()


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """Memory of a device that the memory plan lays out as one arena per call.

    ``name`` is what arguments of kernels call the arena in a manifest. ``alignment`` in bytes
    holds for the arena and for every buffer in it.
    """

    name: str = "arena"
    device: Device = HOST
    alignment: int = 64


HOST_MEMORY = MemorySpace()
