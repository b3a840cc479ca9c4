"""Improves a placement by simulation: local search along the critical path.

The makespan of a schedule only falls if a task on its critical path moves. The critical path is the
chain of tasks that each waited for the one before, for its data or for a free lane of the device.
The search moves single classes and runs of the chain until no move helps; then a random change
starts it from another placement. The random seed is fixed, and the work is bounded by a count of
simulated tasks, so that equal problems have equal results on every machine.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from weft.support.dataclass import dataclass
from weft.transform.placement.list_scheduling import heft
from weft.transform.placement.problem_arrays import Arrays
from weft.transform.placement.simulate import Run, dispatched, in_order, peak_memory, ranks

# Simulated tasks, about a microsecond each: about one second, and more for large graphs.
_BUDGET = 900_000
_MIN_RUNS = 150
_RUNS, _RUNS_PER_CHOICE = 2_000, 120  # simulations for each class and device
# The share of starts with random priorities, and the relative size of these changes.
_SHAKEN, _SHAKE = 0.4, 0.3
# The cost of a greedy run, in simulations of a given order.
_GREEDY = 4
# Up to this many placements, the search tries all of them.
_EXHAUSTIVE = 1_024
# Factors on the time of copies with which HEFT makes starting placements.
_COPY_FACTORS = (1.0, 0.3, 3.0, 10.0)
_LONGEST_RUN = 24
# A start may be this much longer than the one before; after some starts, the search returns to the
# best.
_ACCEPTED, _RESET = 1.02, 40
# For more tasks than this, HEFT with the first factor is the only start.
_LARGE = 2_000
# The search stops at a makespan this close to the lower bound.
_CLOSE = 1.001


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement, the order of tasks on each device, and (bytes over the limits, makespan)."""

    placed: tuple[int, ...]
    order: tuple[int, ...]
    cost: tuple[float, float]


def improved(arrays: Arrays) -> Solution:
    """The best placement found, from several starts."""
    search = _Search(arrays)
    factors = _COPY_FACTORS if len(arrays.seconds) <= _LARGE else _COPY_FACTORS[:1]
    starts = [heft(arrays, factor) for factor in factors]
    starts += [placed for placed in search.on_one_device() if placed not in starts]
    if search.is_small:
        starts += search.all_placements()
    best = min(map(search.scheduled, starts), key=lambda one: one.cost)
    if search.is_good(best):
        return best
    return search.ordered(search.climbed(best))


class _Search:
    """Counts the simulated tasks; ``choices`` are the classes that may be on several devices."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.has_limits = any(limit is not None for limit in arrays.memory_limits)
        self.choices = [n for n, allowed in enumerate(arrays.allowed) if len(allowed) > 1]
        self.random = random.Random(0)  # noqa: S311 - a search, not a secret
        size = max(len(arrays.seconds), 1)
        self.bound = bound(arrays)
        choices = sum(len(arrays.allowed[class_]) for class_ in self.choices)
        self.runs_left = min(max(_BUDGET // size, _MIN_RUNS),
                             _RUNS + _RUNS_PER_CHOICE * choices)

    @property
    def is_small(self) -> bool:
        count = 1
        for class_ in self.choices:
            count *= len(self.arrays.allowed[class_])
            if count > _EXHAUSTIVE:
                return False
        return True

    def all_placements(self) -> list[list[int]]:
        """All placements."""
        allowed = self.arrays.allowed
        return [[devices[class_] for class_ in self.arrays.class_of]
                for devices in itertools.product(*allowed)]

    def on_one_device(self) -> list[list[int]]:
        """For each device, the placement that uses it for every class that it can run."""
        found = []
        for device in range(len(self.arrays.devices)):
            of_class = [device if device in allowed else allowed[0]
                        for allowed in self.arrays.allowed]
            found.append([of_class[class_] for class_ in self.arrays.class_of])
        return found

    # Costs.

    def is_good(self, solution: Solution) -> bool:
        """Whether the lower bound leaves no gain."""
        return not self.choices or (solution.cost[0] == 0
                                    and solution.cost[1] <= _CLOSE * self.bound)

    def cost(self, placed: Sequence[int], run: Run) -> tuple[float, float]:
        """The bytes beyond the memory of devices, then the makespan."""
        self.runs_left -= 1
        excess = 0
        if self.has_limits:
            peaks = peak_memory(self.arrays, placed, run)
            excess = sum(max(0, peak - limit) for peak, limit in
                         zip(peaks, self.arrays.memory_limits, strict=True) if limit is not None)
        return float(excess), run.makespan

    def scheduled(self, placed: Sequence[int], shake: float = 0.0) -> Solution:
        """A placement with the order of the greedy run, by ranks with random changes."""
        self.runs_left -= _GREEDY - 1
        priorities = ranks(self.arrays, placed)
        if shake:
            priorities = [one * self.random.uniform(1 - shake, 1 + shake) for one in priorities]
        order = dispatched(self.arrays, placed, priorities).order
        cost = self.cost(placed, in_order(self.arrays, placed, order))
        return Solution(tuple(placed), tuple(order), cost)

    def in_same_order(self, placed: list[int], order: Sequence[int]) -> Solution:
        return Solution(tuple(placed), tuple(order),
                        self.cost(placed, in_order(self.arrays, placed, order)))

    # The search over placements.

    def climbed(self, best: Solution) -> Solution:
        """Hill climbing, repeated from random changes of the best solution."""
        best = here = self._climb(best)
        failures = 0
        while self.runs_left > 0 and not self.is_good(best):
            count = 1 + min(failures // 4, 4)
            placed = list(here.placed)
            for class_ in self.random.choices(self.choices, k=count):
                self._move(placed, class_, self.random.choice(self.arrays.allowed[class_]))
            shake = _SHAKE if self.random.random() < _SHAKEN else 0.0
            found = self._climb(self.scheduled(placed, shake))
            failures += 1
            if found.cost < best.cost:
                best, failures = found, 0
            if found.cost <= (here.cost[0], here.cost[1] * _ACCEPTED) and failures % _RESET:
                here = found  # slightly longer, but another region of the search space
            else:
                here = best
        return best

    def _climb(self, best: Solution) -> Solution:
        """Hill climbing: takes the first move that helps in each iteration, until none does."""
        while self.runs_left > 0:
            for placed in self._neighbours(best):
                found = self.in_same_order(placed, best.order)
                if found.cost < best.cost:
                    again = self.scheduled(found.placed)
                    best = min(found, again, key=lambda one: one.cost)
                    break
                if self.runs_left <= 0:
                    return best
            else:
                return best
        return best

    def _neighbours(self, solution: Solution) -> Iterator[list[int]]:
        """Placements in which a class on the critical path, or a run of such classes, has moved."""
        chain = self._critical_classes(solution)
        for first in range(len(chain)):
            for length in (1, 2, 3, 5, 8, 13, _LONGEST_RUN):
                moved = chain[first:first + length]
                if length > 1 and len(moved) < length:
                    break
                for device in self.arrays.allowed[moved[0]]:
                    placed = list(solution.placed)
                    changed = False
                    for class_ in moved:
                        changed |= self._move(placed, class_, device)
                    if changed:
                        yield placed
        if solution.cost[0] > 0:
            for class_ in self.choices:
                for device in self.arrays.allowed[class_]:
                    placed = list(solution.placed)
                    if self._move(placed, class_, device):
                        yield placed

    def _move(self, placed: list[int], class_: int, device: int) -> bool:
        """Move a class to a device that can run it; returns whether that changes anything."""
        if device not in self.arrays.allowed[class_]:
            return False
        members = self.arrays.classes[class_]
        if placed[members[0]] == device:
            return False
        for member in members:
            placed[member] = device
        return True

    def _critical_classes(self, solution: Solution) -> list[int]:
        """The movable classes on the critical path, the last first."""
        movable = set(self.choices)
        chain = critical_tasks(self.arrays, solution.placed, solution.order)
        return list(dict.fromkeys(
            self.arrays.class_of[task] for task in chain
            if self.arrays.class_of[task] in movable))

    # The search over orders.

    def ordered(self, best: Solution) -> Solution:
        """Exchange neighbours in the order of a device while that helps."""
        self.runs_left = max(self.runs_left, min(_BUDGET // (4 * max(len(best.order), 1)), 500))
        improves = True
        while improves and self.runs_left > 0:
            improves = False
            for order in self._exchanges(best):
                found = self.in_same_order(list(best.placed), order)
                if found.cost < best.cost:
                    best, improves = found, True
                    break
                if self.runs_left <= 0:
                    break
        return best

    def _exchanges(self, solution: Solution) -> Iterator[list[int]]:
        """Orders in which a critical task moves ahead of the task before it on its device."""
        critical = set(critical_tasks(self.arrays, solution.placed, solution.order))
        last: dict[int, int] = {}
        for position, task in enumerate(solution.order):
            device = solution.placed[task]
            before = last.get(device)
            last[device] = position
            if task in critical and before is not None:
                order = list(solution.order)
                earlier = self._needed(task, order[before:position])
                if order[before] not in earlier:
                    block = order[before:position]
                    order[before:position + 1] = [
                        *(one for one in block if one in earlier), task,
                        *(one for one in block if one not in earlier)]
                    yield order

    def _needed(self, task: int, block: Sequence[int]) -> set[int]:
        """The tasks in a part of the order that ``task`` depends on."""
        needed: set[int] = set()
        wanted = {self.arrays.buffers[buffer].producer for buffer in self.arrays.reads[task]}
        for one in reversed(block):
            if one in wanted:
                needed.add(one)
                wanted |= {self.arrays.buffers[b].producer for b in self.arrays.reads[one]}
        return needed


def bound(arrays: Arrays) -> float:
    """A lower bound of the makespan: the critical path or the work, with the shortest times."""
    shortest = [min(of_task[device] for device in arrays.allowed[class_])
                for of_task, class_ in zip(arrays.seconds, arrays.class_of, strict=True)]
    finishes = [0.0] * len(shortest)
    for task in arrays.topological:
        ready = max((finishes[arrays.buffers[b].producer] for b in arrays.reads[task]),
                    default=0.0)
        finishes[task] = ready + shortest[task]
    return max(max(finishes, default=0.0), sum(shortest) / sum(arrays.lanes))


def critical_tasks(arrays: Arrays, placed: Sequence[int], order: Sequence[int]) -> list[int]:
    """The tasks of the critical path, the last first.

    Each started when the next one in the list had finished, or had sent its data.
    """
    run = in_order(arrays, placed, order)
    count = len(arrays.devices)
    if not order:
        return []
    by_finish: dict[tuple[int, float], int] = {
        (placed[task], run.finishes[task]): task for task in order}
    task = max(order, key=lambda one: run.finishes[one])
    chain = [task]
    seen = {task}
    while run.starts[task] > 0.0:
        device, start = placed[task], run.starts[task]
        found = next((arrays.buffers[buffer].producer for buffer in arrays.reads[task]
                      if run.arrivals[buffer * count + device] == start), None)
        if found is None:
            found = by_finish.get((device, start))
        if found is None or found in seen:
            break
        chain.append(found)
        seen.add(found)
        task = found
    return chain
