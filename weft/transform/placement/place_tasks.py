"""``place_tasks``: placement by cost, with a reason for each task."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from weft.support.errors import TargetError
from weft.transform.placement.improve import Solution, bound, improved
from weft.transform.placement.problem_arrays import Arrays, arrays_of
from weft.transform.placement.simulate import in_order, peak_memory, timeline
from weft.transform.placement.task_graph import Placement, Task, Timeline, Topology


def place_tasks(tasks: Sequence[Task], topology: Topology) -> Placement:
    """Devices for ``tasks`` that minimise the simulated makespan; equal arguments give equal
    results.

    HEFT gives placements, which a local search by simulation improves. Raises ``TargetError`` for a
    task that no device can run, for tasks that must be together and cannot, for a cycle, and if no
    placement fits the memories of the devices.
    """
    arrays = arrays_of(tasks, topology)
    found = improved(arrays)
    if found.cost[0] > 0:
        raise _beyond_memory(arrays, found)
    run = timeline(arrays, found.placed, found.order)
    return Placement(tuple(arrays.devices[one] for one in found.placed), run.order, run.makespan,
                     run.starts, run.finishes,
                     tuple(_reasons(tasks, arrays, found.placed, run)))


def lower_bound(tasks: Sequence[Task], topology: Topology) -> float:
    """A lower bound of the makespan in seconds: the critical path, or the work over all lanes.

    Each task counts with its shortest time, and transfers are free.
    """
    return bound(arrays_of(tasks, topology))


def _beyond_memory(arrays: Arrays, found: Solution) -> TargetError:
    run = in_order(arrays, found.placed, found.order)
    peaks = peak_memory(arrays, found.placed, run)
    notes = [f"{device}: {peak} bytes of {'any number' if limit is None else limit}"
             for device, peak, limit in zip(arrays.devices, peaks, arrays.memory_limits,
                                            strict=True)]
    return TargetError("the program does not fit the memory of its devices", notes=notes,
                       help="give the devices more memory, or add one")


def _reasons(tasks: Sequence[Task], arrays: Arrays, placed: Sequence[int], run: Timeline
             ) -> Iterator[str]:
    """The reason for the device of each task: its pin, or when it would finish on other devices."""
    idle = _Idle(arrays, placed, run)
    for number in range(len(tasks)):
        class_ = arrays.class_of[number]
        allowed, members = arrays.allowed[class_], arrays.classes[class_]
        together = f", with {tasks[members[0]].name}" \
            if len(members) > 1 and members[0] != number else ""
        here = arrays.devices[placed[number]]
        if len(allowed) == 1:
            pins = [tasks[one].pinned for one in members if tasks[one].pinned is not None]
            why = f"pinned to {pins[0]}" if pins else f"only {here} can run it"
            yield why + together
            continue
        others = ", ".join(
            f"{arrays.devices[other]} at {idle.finish(number, other) * 1e6:.1f} us"
            for other in allowed if other != placed[number])
        yield f"finishes at {run.finishes[number] * 1e6:.1f} us; {others}{together}"


class _Idle:
    """The finish time of a task on another device, if all other tasks stayed."""

    def __init__(self, arrays: Arrays, placed: Sequence[int], run: Timeline) -> None:
        self.arrays, self.placed, self.run = arrays, placed, run
        busy: list[list[tuple[float, float]]] = [[] for _ in arrays.devices]
        for task in run.order:
            busy[placed[task]].append((run.starts[task], run.finishes[task]))
        self.starts = [[one[0] for one in of_device] for of_device in busy]
        self.finishes = [[one[1] for one in of_device] for of_device in busy]

    def finish(self, task: int, device: int) -> float:
        """The finish time in the first sufficient gap, on a device with one lane."""
        arrays = self.arrays
        ready = 0.0
        for buffer in arrays.reads[task]:
            producer = arrays.buffers[buffer].producer
            copy = arrays.copy_seconds[buffer][self.placed[producer]][device]
            ready = max(ready, self.run.finishes[producer] + copy)
        seconds = arrays.seconds[task][device]
        if arrays.lanes[device] > 1:
            return ready + seconds
        starts, finishes = self.starts[device], self.finishes[device]
        start = ready
        for index in range(bisect.bisect_right(finishes, ready), len(starts)):
            if start + seconds <= starts[index]:
                break
            start = max(start, finishes[index])
        return start + seconds
