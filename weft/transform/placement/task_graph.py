"""Task graphs: the input of placement by cost.

A task is a kernel with estimated seconds on each device that can run it; tasks exchange buffers
over links between the devices. ``place_tasks`` chooses the devices, ``simulate`` computes when each
task runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.ir.virtual_device import VirtualDevice
from weft.runtime.device import Device
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TaskInput:
    """A buffer that a task reads: ``nbytes`` written by task number ``producer``.

    A buffer is transferred once to each device that reads it; ``buffer`` tells the buffers of one
    producer apart. A dependency without data has 0 bytes.
    """

    producer: int
    nbytes: int = 0
    buffer: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel. ``seconds`` are estimates for each device that can run it.

    Tasks with equal ``colocated`` are on one device. ``memory`` is the bytes that the task
    allocates on its device: its results and scratch memory.
    """

    name: str
    op: str
    seconds: Mapping[Device, float]
    inputs: tuple[TaskInput, ...] = ()
    pinned: VirtualDevice | None = None
    colocated: int | None = None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """Transfers from one device to another, one after the other."""

    bytes_per_second: float = 10e9
    latency_seconds: float = 1e-5

    def seconds(self, nbytes: int) -> float:
        """The seconds that the transfer of a buffer takes."""
        return self.latency_seconds + nbytes / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A device that runs ``lanes`` tasks at once in ``memory_bytes`` (``None``: enough)."""

    device: Device
    lanes: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """Devices, and the links that differ from ``default_link``, by source and destination."""

    devices: tuple[DeviceModel, ...]
    links: Mapping[tuple[Device, Device], Link] = field(default_factory=dict)
    default_link: Link = Link()

    def link(self, source: Device, destination: Device) -> Link:
        """The link between two different devices."""
        return self.links.get((source, destination), self.default_link)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A buffer of task ``producer`` on its way to another device."""

    producer: int
    buffer: int
    source: Device
    destination: Device
    start: float
    finish: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each task runs, in seconds, and the transfers.

    ``order`` are the tasks by their start. ``peak_memory`` is the peak of each device: results from
    their computation to their last read, and received buffers.
    """

    starts: tuple[float, ...]
    finishes: tuple[float, ...]
    order: tuple[int, ...]
    makespan: float
    transfers: tuple[Transfer, ...] = ()
    peak_memory: Mapping[Device, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """The device of each task, with the reason.

    ``order`` is a valid order of execution, by simulated start. Times are those of ``simulate``.
    """

    devices: tuple[Device, ...]
    order: tuple[int, ...]
    makespan: float
    starts: tuple[float, ...]
    finishes: tuple[float, ...]
    reasons: tuple[str, ...]
