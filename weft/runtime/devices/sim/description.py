"""``SimDevice``: what a simulated device is, and the links between devices."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.runtime.device import HOST, Device
from weft.runtime.devices.cpu.thread_pool import MAX_THREADS
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

SIM = "sim"
# About those of a GPU on PCI Express 3.
BANDWIDTH = 10e9
LATENCY = 1e-5


@dataclass(frozen=True, slots=True)
class SimDevice:
    """Device ``sim:number``: a CPU device with memory and ``threads`` threads of its own.

    ``memory`` limits the bytes of its buffers and constants (``None``: no limit). A copy to or from
    it takes at least ``latency`` seconds and ``bandwidth`` bytes per second allow; between two
    simulated devices the lower bandwidth and the higher latency hold. Raises ``OptionError`` for
    values that mean nothing.
    """

    number: int
    threads: int = 1
    memory: int | None = None
    bandwidth: float = BANDWIDTH
    latency: float = LATENCY

    def __post_init__(self) -> None:
        _check(_is_whole(self.number) and self.number >= 0, "number", "0 or more", self.number)
        _check(_is_whole(self.threads) and 1 <= self.threads <= MAX_THREADS, "threads",
               f"1 to {MAX_THREADS}", self.threads)
        _check(self.memory is None or (_is_whole(self.memory) and self.memory > 0), "memory",
               "bytes above 0, or None", self.memory)
        _check(_is_number(self.bandwidth) and self.bandwidth > 0, "bandwidth",
               "bytes per second above 0", self.bandwidth)
        _check(_is_number(self.latency) and 0 <= self.latency < math.inf, "latency",
               "seconds, 0 or more", self.latency)

    @property
    def device(self) -> Device:
        """The device, as steps and placements name it."""
        return Device(SIM, self.number)

    def __str__(self) -> str:
        return str(self.device)


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """The time of a copy between two memories: ``latency`` seconds, then the bytes."""

    bandwidth: float = math.inf
    latency: float = 0.0

    def seconds(self, nbytes: int) -> float:
        """The time of a copy."""
        return self.latency + nbytes / self.bandwidth


class Links:
    """The links between the devices of a program; the host's memory is as fast as they are."""

    def __init__(self, devices: Iterable[SimDevice]) -> None:
        self._devices = {one.device: one for one in devices}

    def between(self, source: Device, destination: Device) -> LinkSpeed:
        """The link from one memory to another; within a memory copies take no stated time."""
        ends = [self._devices[one] for one in (source, destination) if one != HOST]
        if source == destination or not ends:
            return LinkSpeed()
        return LinkSpeed(min(one.bandwidth for one in ends), max(one.latency for one in ends))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check(good: bool, name: str, expected: str, got: object) -> None:
    if not good:
        raise OptionError(f"a simulated device cannot have this {name}", expected=expected,
                          got=repr(got))
