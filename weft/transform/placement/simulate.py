"""The simulator of placement by cost: when the tasks of a graph run on given devices.

As in section 3.2.1 of "TensorFlow: Large-Scale Machine Learning on Heterogeneous Distributed
Systems" (Abadi et al., 2015), a task starts when its inputs are on its device and a lane of the
device is free. A device runs its tasks in the given order. Buffers are sent when their producer has
finished, one after the other on each link.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from weft.runtime.device import Device
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.transform.placement.problem_arrays import Arrays, arrays_of
from weft.transform.placement.task_graph import Task, Timeline, Topology, Transfer


def simulate(tasks: Sequence[Task], topology: Topology, devices: Sequence[Device],
             order: Sequence[int] | None = None) -> Timeline:
    """The times of ``tasks`` on ``devices``, one device for each task.

    ``order`` is the order in which each device starts its tasks; without it, a device starts the
    ready task with the longest path to the end. Raises ``TargetError`` for devices that cannot run
    a task, and for an order in which a task precedes its producer.
    """
    arrays = arrays_of(tasks, topology)
    numbers = {device: number for number, device in enumerate(arrays.devices)}
    try:
        placed = [numbers[device] for device in devices]
    except KeyError as error:
        raise TargetError(f"the topology has no device {error.args[0]}") from None
    for task, device in zip(tasks, devices, strict=True):
        if device not in task.seconds:
            raise TargetError(f"{device} cannot run {task.name!r}",
                              expected=", ".join(map(str, task.seconds)))
    if order is None:
        order = dispatched(arrays, placed, ranks(arrays, placed)).order
    else:
        _check_order(arrays, order)
    return timeline(arrays, placed, order)


def _check_order(arrays: Arrays, order: Sequence[int]) -> None:
    positions = {number: position for position, number in enumerate(order)}
    if len(positions) != len(arrays.seconds) or len(order) != len(positions):
        raise TargetError("an order of tasks has each task once")
    for buffer in arrays.buffers:
        for consumer in buffer.consumers:
            if positions[buffer.producer] >= positions[consumer]:
                raise TargetError("an order of tasks has each task after what it reads",
                                  got=f"task {consumer} before task {buffer.producer}")


@dataclass(frozen=True, slots=True)
class Run:
    """Simulated times by task, and when each buffer is on each device (``b * devices + d``)."""

    starts: list[float]
    finishes: list[float]
    arrivals: list[float]
    makespan: float


def in_order(arrays: Arrays, placed: Sequence[int], order: Sequence[int]) -> Run:
    """The run in which each device starts its tasks in the given order."""
    count = len(arrays.devices)
    seconds, reads, writes = arrays.seconds, arrays.reads, arrays.writes
    buffers, copy_seconds = arrays.buffers, arrays.copy_seconds
    starts = [0.0] * len(placed)
    finishes = [0.0] * len(placed)
    arrivals = [0.0] * (len(buffers) * count)
    lanes = [[0.0] * lane for lane in arrays.lanes]
    link_free = [0.0] * (count * count)
    last_starts = [0.0] * count
    for task in order:
        device = placed[task]
        free = lanes[device]
        start = max(free[0], last_starts[device])
        for buffer in reads[task]:
            arrival = arrivals[buffer * count + device]
            start = max(start, arrival)
        finish = start + seconds[task][device]
        starts[task] = last_starts[device] = start
        finishes[task] = finish
        if len(free) == 1:
            free[0] = finish
        else:
            heapq.heapreplace(free, finish)
        for buffer in writes[task]:
            arrivals[buffer * count + device] = finish
            sent = 1 << device
            for consumer in buffers[buffer].consumers:
                target = placed[consumer]
                if not sent >> target & 1:
                    sent |= 1 << target
                    link = device * count + target
                    begin = max(finish, link_free[link])
                    arrived = begin + copy_seconds[buffer][device][target]
                    link_free[link] = arrivals[buffer * count + target] = arrived
    return Run(starts, finishes, arrivals, max(finishes, default=0.0))


def ranks(arrays: Arrays, placed: Sequence[int]) -> list[float]:
    """The longest path from the start of each task to the end, in seconds, on these devices."""
    found = [0.0] * len(placed)
    for task in reversed(arrays.topological):
        device = placed[task]
        rest = 0.0
        for buffer in arrays.writes[task]:
            copies = arrays.copy_seconds[buffer][device]
            for consumer in arrays.buffers[buffer].consumers:
                rest = max(rest, copies[placed[consumer]] + found[consumer])
        found[task] = arrays.seconds[task][device] + rest
    return found


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The order of starts of a greedy run, and its makespan."""

    order: list[int]
    makespan: float


def dispatched(arrays: Arrays, placed: Sequence[int], priorities: Sequence[float]) -> Dispatch:
    """A greedy, event-driven run: a free lane takes the ready task of the highest priority."""
    state = _Events(arrays, placed, priorities)
    return state.run()


class _Events:
    """Events as (time, sequence number, task that finished or became ready)."""

    def __init__(self, arrays: Arrays, placed: Sequence[int], priorities: Sequence[float]) -> None:
        self.arrays, self.placed, self.priorities = arrays, placed, priorities
        self.missing = [len(read) for read in arrays.reads]
        self.ready_at = [0.0] * len(placed)
        self.free = list(arrays.lanes)
        self.waiting: list[list[tuple[float, int]]] = [[] for _ in arrays.devices]
        self.link_free: dict[tuple[int, int], float] = {}
        self.events: list[tuple[float, int, int]] = [
            (0.0, 1, task) for task, count in enumerate(self.missing) if count == 0]

    def run(self) -> Dispatch:
        order: list[int] = []
        events = self.events
        heapq.heapify(events)
        now = 0.0
        while events:
            now = events[0][0]
            touched = set()
            while events and events[0][0] == now:
                _, is_ready, task = heapq.heappop(events)
                device = self.placed[task]
                touched.add(device)
                if is_ready:
                    heapq.heappush(self.waiting[device], (-self.priorities[task], task))
                else:
                    self.free[device] += 1
                    self._send(task, now)
            for device in sorted(touched):
                self._start(device, now, order)
        return Dispatch(order, now)

    def _start(self, device: int, now: float, order: list[int]) -> None:
        waiting = self.waiting[device]
        while waiting and self.free[device]:
            _, task = heapq.heappop(waiting)
            self.free[device] -= 1
            order.append(task)
            heapq.heappush(self.events, (now + self.arrays.seconds[task][device], 0, task))

    def _send(self, task: int, now: float) -> None:
        """Make the buffers of a finished task available to their consumers."""
        source = self.placed[task]
        for buffer in self.arrays.writes[task]:
            arrived = {source: now}
            for consumer in self.arrays.buffers[buffer].consumers:
                target = self.placed[consumer]
                if target not in arrived:
                    link = source, target
                    begin = max(now, self.link_free.get(link, 0.0))
                    arrived[target] = begin + self.arrays.copy_seconds[buffer][source][target]
                    self.link_free[link] = arrived[target]
                self.ready_at[consumer] = max(self.ready_at[consumer], arrived[target])
                self.missing[consumer] -= 1
                if self.missing[consumer] == 0:
                    heapq.heappush(self.events, (self.ready_at[consumer], 1, consumer))


def timeline(arrays: Arrays, placed: Sequence[int], order: Sequence[int]) -> Timeline:
    """The run in the given order, with its transfers and the memory that it needs."""
    run = in_order(arrays, placed, order)
    devices, count = arrays.devices, len(arrays.devices)
    transfers = []
    for number, buffer in enumerate(arrays.buffers):
        source = placed[buffer.producer]
        for target in dict.fromkeys(placed[consumer] for consumer in buffer.consumers):
            if target != source:
                arrived = run.arrivals[number * count + target]
                begin = arrived - arrays.copy_seconds[number][source][target]
                transfers.append(Transfer(buffer.producer, buffer.number, devices[source],
                                          devices[target], begin, arrived))
    positions = {task: position for position, task in enumerate(order)}
    by_start = sorted(order, key=lambda task: (run.starts[task], positions[task]))
    return Timeline(tuple(run.starts), tuple(run.finishes), tuple(by_start), run.makespan,
                    tuple(transfers), dict(zip(devices, peak_memory(arrays, placed, run),
                                               strict=True)))


def peak_memory(arrays: Arrays, placed: Sequence[int], run: Run) -> list[int]:
    """The peak memory of each device in bytes."""
    count = len(arrays.devices)
    # For each device: (time, 0 to free or 1 to allocate, bytes). At equal times, frees come first.
    changes: list[list[tuple[float, int, int]]] = [[] for _ in range(count)]
    held = list(run.finishes)
    for number, buffer in enumerate(arrays.buffers):
        source = placed[buffer.producer]
        until: dict[int, float] = {}
        for consumer in buffer.consumers:
            target = placed[consumer]
            until[target] = max(until.get(target, 0.0), run.finishes[consumer])
        for target, end in until.items():
            if target == source:
                held[buffer.producer] = max(held[buffer.producer], end)
                continue
            arrived = run.arrivals[number * count + target]
            begin = arrived - arrays.copy_seconds[number][source][target]
            held[buffer.producer] = max(held[buffer.producer], arrived)
            changes[target] += [(begin, 1, buffer.nbytes), (end, 0, -buffer.nbytes)]
    for task, nbytes in enumerate(arrays.memory):
        if nbytes:
            changes[placed[task]] += [(run.starts[task], 1, nbytes), (held[task], 0, -nbytes)]
    return [_peak(of_device) for of_device in changes]


def _peak(changes: list[tuple[float, int, int]]) -> int:
    changes.sort()
    now = peak = 0
    for _, _, nbytes in changes:
        now += nbytes
        peak = max(peak, now)
    return peak
