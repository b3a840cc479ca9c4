"""A task graph as flat lists of numbers, which the simulator and the schedulers traverse fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft.ir.virtual_device import ANYWHERE
from weft.runtime.device import Device
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.transform.placement.task_graph import Task, Topology

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer by its producer; ``consumers`` are the tasks that read it."""

    producer: int
    number: int
    nbytes: int
    consumers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Devices are numbered as in the topology, buffers by their producers.

    ``classes`` are the tasks that must be together, by number of the class; ``allowed`` are the
    devices of each class. ``copy_seconds[buffer][source][destination]`` is 0 on the diagonal.
    """

    devices: tuple[Device, ...]
    lanes: tuple[int, ...]
    memory_limits: tuple[int | None, ...]
    seconds: tuple[tuple[float, ...], ...]      # seconds of each task and device, or infinity
    memory: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    reads: tuple[tuple[int, ...], ...]          # buffers that each task reads
    writes: tuple[tuple[int, ...], ...]         # buffers that each task writes
    copy_seconds: tuple[tuple[tuple[float, ...], ...], ...]
    class_of: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[int, ...], ...]
    topological: tuple[int, ...]


def arrays_of(tasks: Sequence[Task], topology: Topology) -> Arrays:
    """The flat form. Raises ``TargetError`` for tasks that no device can run, or for a cycle."""
    devices = tuple(model.device for model in topology.devices)
    if not devices:
        raise TargetError("no devices to place a program on")
    buffers, reads, writes = _buffers(tasks)
    links = [[(0.0, 0.0) if a == b else _link(topology, a, b) for b in devices] for a in devices]
    infinity = float("inf")
    seconds = tuple(tuple(task.seconds.get(device, infinity) for device in devices)
                    for task in tasks)
    class_of, classes = _classes(tasks)
    return Arrays(
        devices, tuple(model.lanes for model in topology.devices),
        tuple(model.memory_bytes for model in topology.devices), seconds,
        tuple(task.memory for task in tasks), buffers, reads, writes,
        tuple(tuple(tuple(latency + one.nbytes * per_byte for latency, per_byte in row)
                    for row in links) for one in buffers),
        class_of, classes, tuple(_allowed(tasks, members, devices) for members in classes),
        _topological(tasks, buffers, reads, writes))


def _link(topology: Topology, source: Device, destination: Device) -> tuple[float, float]:
    link = topology.link(source, destination)
    return link.latency_seconds, 1.0 / link.bytes_per_second


_Lists: TypeAlias = "tuple[tuple[int, ...], ...]"


def _buffers(tasks: Sequence[Task]) -> tuple[tuple[Buffer, ...], _Lists, _Lists]:
    numbers: dict[tuple[int, int], int] = {}
    sizes: list[int] = []
    consumers: list[list[int]] = []
    reads: list[tuple[int, ...]] = []
    writes: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        read: dict[int, None] = {}
        for one in task.inputs:
            key = one.producer, one.buffer
            if key not in numbers:
                numbers[key] = len(sizes)
                writes[one.producer].append(len(sizes))
                sizes.append(0)
                consumers.append([])
            found = numbers[key]
            sizes[found] = max(sizes[found], one.nbytes)
            if found not in read:
                read[found] = None
                consumers[found].append(number)
        reads.append(tuple(read))
    buffers = tuple(Buffer(producer, buffer, sizes[found], tuple(consumers[found]))
                    for (producer, buffer), found in numbers.items())
    return buffers, tuple(reads), tuple(map(tuple, writes))


def _classes(tasks: Sequence[Task]) -> tuple[tuple[int, ...], _Lists]:
    members: list[list[int]] = []
    known: dict[int, int] = {}
    class_of = []
    for number, task in enumerate(tasks):
        found = None if task.colocated is None else known.get(task.colocated)
        if found is None:
            found = len(members)
            members.append([])
            if task.colocated is not None:
                known[task.colocated] = found
        members[found].append(number)
        class_of.append(found)
    return tuple(class_of), tuple(map(tuple, members))


def _allowed(tasks: Sequence[Task], members: Sequence[int], devices: Sequence[Device]
             ) -> tuple[int, ...]:
    """The devices that can run all tasks of a class."""
    found = []
    for number, device in enumerate(devices):
        if all(device in tasks[one].seconds and (tasks[one].pinned or ANYWHERE).matches(device)
               for one in members):
            found.append(number)
    if not found:
        raise _nowhere(tasks, members, devices)
    return tuple(found)


def _nowhere(tasks: Sequence[Task], members: Sequence[int], devices: Sequence[Device]
             ) -> TargetError:
    shown = [tasks[one] for one in members[:_SHOWN]]
    notes = [f"{task.name} ({task.op}): "
             f"{'pinned to ' + str(task.pinned) + ', ' if task.pinned else ''}"
             f"runs on {', '.join(map(str, task.seconds)) or 'no device'}" for task in shown]
    what = (f"cannot assign a device to {shown[0].name!r}" if len(members) == 1 else
            f"cannot colocate {shown[0].name!r} and {shown[1].name!r}: no device runs all of them")
    return TargetError(what, expected=f"one of {', '.join(map(str, devices))}", notes=notes)


def _topological(tasks: Sequence[Task], buffers: Sequence[Buffer],
                 reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]]
                 ) -> tuple[int, ...]:
    """The tasks after their producers, in the given order where it is one (Kahn)."""
    if all(one.producer < number for number, task in enumerate(tasks) for one in task.inputs):
        return tuple(range(len(tasks)))
    missing = [len(read) for read in reads]
    order = [number for number, count in enumerate(missing) if count == 0]
    for number in order:
        for buffer in writes[number]:
            for consumer in buffers[buffer].consumers:
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    order.append(consumer)
    if len(order) < len(tasks):
        stuck = next(number for number, count in enumerate(missing) if count > 0)
        raise TargetError("tasks wait for one another", got=f"a cycle through {tasks[stuck].name}")
    return tuple(order)
