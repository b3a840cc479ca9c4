"""``place_tasks``: placement by cost, with a reason for each task."""

from __future__ import annotations

from collections.abc import Sequence

from weft.transform.placement.list_scheduling import heft
from weft.transform.placement.problem_arrays import Arrays, arrays_of
from weft.transform.placement.simulate import dispatched, ranks, timeline
from weft.transform.placement.task_graph import Placement, Task, Topology


def place_tasks(tasks: Sequence[Task], topology: Topology) -> Placement:
    """Devices for ``tasks`` that make the simulated run short; the same for equal arguments.

    Raises ``TargetError`` for a task that no device can run, for tasks that must be together and
    cannot, and for a cycle.
    """
    arrays = arrays_of(tasks, topology)
    placed = heft(arrays)
    order = dispatched(arrays, placed, ranks(arrays, placed)).order
    run = timeline(arrays, placed, order)
    return Placement(tuple(arrays.devices[one] for one in placed), run.order, run.makespan,
                     run.starts, run.finishes, _reasons(tasks, arrays, placed))


def _reasons(tasks: Sequence[Task], arrays: Arrays, placed: Sequence[int]) -> tuple[str, ...]:
    found = []
    for number, task in enumerate(tasks):
        allowed = arrays.allowed[arrays.class_of[number]]
        if task.pinned is not None and len(allowed) == 1:
            found.append(f"pinned to {task.pinned}")
        elif len(allowed) == 1:
            found.append(f"only {arrays.devices[placed[number]]} can run it")
        else:
            found.append("finishes first here")
    return tuple(found)
