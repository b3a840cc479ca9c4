"""HEFT: heterogeneous earliest finish time, a list scheduler with insertion.

Topcuoglu, Hariri and Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", 2002. Tasks are taken by upward rank, the longest path to the end by mean
times. Each task goes to the device where it finishes first, into an idle interval if it fits.
Unlike in the paper, a link sends one buffer at a time, and a buffer is sent to a device only once.
"""

from __future__ import annotations

import bisect

from weft.transform.placement.problem_arrays import Arrays


class Lane:
    """The idle intervals of a lane (an execution unit of a device) or a link, in order of time.

    The last interval has no end. Intervals shorter than ``shortest`` are dropped: nothing fits.
    """

    __slots__ = ("ends", "shortest", "starts")

    def __init__(self, shortest: float = 0.0) -> None:
        self.starts = [0.0]
        self.ends = [float("inf")]
        self.shortest = shortest

    def first_gap(self, ready: float, seconds: float) -> float:
        """The earliest start from ``ready`` on at which the lane is idle for ``seconds``."""
        index = bisect.bisect_right(self.ends, ready)
        while True:
            start = max(ready, self.starts[index])
            if start + seconds <= self.ends[index]:
                return start
            index += 1

    def insert(self, start: float, finish: float) -> None:
        """Make the lane busy for a part of an idle interval."""
        index = bisect.bisect_right(self.starts, start) - 1
        first, last = self.starts[index], self.ends[index]
        left = [(first, start)] if start - first > self.shortest else []
        right = [(finish, last)] if last - finish > self.shortest else []
        kept = left + right
        self.starts[index:index + 1] = [one[0] for one in kept]
        self.ends[index:index + 1] = [one[1] for one in kept]


def mean_ranks(arrays: Arrays) -> list[float]:
    """The upward rank of each task: mean seconds over the allowed devices, and mean copies."""
    count = len(arrays.devices)
    pairs = max(count * (count - 1), 1)
    copies = [sum(map(sum, of_buffer)) / pairs for of_buffer in arrays.copy_seconds]
    found = [0.0] * len(arrays.seconds)
    for task in reversed(arrays.topological):
        allowed = arrays.allowed[arrays.class_of[task]]
        rest = 0.0
        for buffer in arrays.writes[task]:
            for consumer in arrays.buffers[buffer].consumers:
                rest = max(rest, copies[buffer] + found[consumer])
        mean = sum(arrays.seconds[task][device] for device in allowed) / len(allowed)
        found[task] = mean + rest
    return found


def heft(arrays: Arrays, copy_factor: float = 1.0) -> list[int]:
    """The number of the device of each task, if copies took ``copy_factor`` times as long."""
    return _ListSchedule(arrays, copy_factor).run()


class _ListSchedule:
    """The schedule so far: devices and finish times of tasks, busy lanes and links, transfers."""

    def __init__(self, arrays: Arrays, copy_factor: float) -> None:
        self.arrays = arrays
        self.copy_factor = copy_factor
        self.placed = [-1] * len(arrays.seconds)
        self.finishes = [0.0] * len(arrays.seconds)
        self.class_device: dict[int, int] = {}
        shortest = min((min(of_task) for of_task in arrays.seconds), default=0.0)
        self.lanes = [[Lane(shortest) for _ in range(lanes)] for lanes in arrays.lanes]
        self.links: dict[tuple[int, int], Lane] = {}
        self.arrivals: dict[tuple[int, int], float] = {}

    def run(self) -> list[int]:
        found = mean_ranks(self.arrays)
        position = {task: n for n, task in enumerate(self.arrays.topological)}
        for task in sorted(position, key=lambda one: (-found[one], position[one])):
            self._place(task)
        return self.placed

    def _place(self, task: int) -> None:
        class_ = self.arrays.class_of[task]
        known = self.class_device.get(class_)
        allowed = self.arrays.allowed[class_] if known is None else (known,)
        finish, device, start, lane = min(
            (self._earliest(task, device) for device in allowed), key=lambda one: one[:2])
        self.class_device[class_] = self.placed[task] = device
        self.finishes[task] = finish
        for buffer in self.arrays.reads[task]:
            self._receive(buffer, device)
        self.lanes[device][lane].insert(start, finish)

    def _earliest(self, task: int, device: int) -> tuple[float, int, float, int]:
        """The earliest finish of a task on a device, the device, its start, and the lane."""
        ready = max((self._arrival(buffer, device) for buffer in self.arrays.reads[task]),
                    default=0.0)
        seconds = self.arrays.seconds[task][device]
        start, lane = min((one.first_gap(ready, seconds), number)
                          for number, one in enumerate(self.lanes[device]))
        return start + seconds, device, start, lane

    def _arrival(self, buffer: int, device: int) -> float:
        """The time at which a buffer is on a device, if a missing one is sent now."""
        known = self.arrivals.get((buffer, device))
        if known is not None:
            return known
        producer = self.arrays.buffers[buffer].producer
        source = self.placed[producer]
        finish = self.finishes[producer]
        if source == device:
            return finish
        copy = self.copy_factor * self.arrays.copy_seconds[buffer][source][device]
        link = self.links.get((source, device))
        return (finish if link is None else link.first_gap(finish, copy)) + copy

    def _receive(self, buffer: int, device: int) -> None:
        source = self.placed[self.arrays.buffers[buffer].producer]
        if source != device and (buffer, device) not in self.arrivals:
            arrived = self._arrival(buffer, device)
            copy = self.copy_factor * self.arrays.copy_seconds[buffer][source][device]
            self.links.setdefault((source, device), Lane()).insert(arrived - copy, arrived)
            self.arrivals[buffer, device] = arrived
