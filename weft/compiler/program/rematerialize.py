"""Rematerialization: steps run again so that fewer results are in memory at once.

The steps are simulated in order under a limit. Where the results of a step do not fit, results that
are cheap to compute again, large, and used late leave memory; a later step that reads one makes its
step run again, and those that it reads in turn if they have left too. This is dynamic tensor
rematerialization (Kirisame et al. 2021, "Dynamic Tensor Rematerialization") at compile time, where
the next use of each result is known: it replaces the time since the last use.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
from collections.abc import Sequence
from dataclasses import field

from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.compiler.program.step_order import temporary_bytes
from weft.support.dataclass import dataclass

# A program never grows to more than this multiple of its steps.
MOST_STEPS = 8

# A result without later uses serves to compute others again over so many steps.
LEVELS = 4


class OverLimitError(Exception):
    """No sequence of steps was found within the limit."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """For each step of a program: estimated seconds, bytes of workspace, whether it may repeat."""

    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    may_repeat: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Rematerialized:
    """A program with steps that run again, and the estimated seconds that these add."""

    program: Program
    extra_seconds: float


@dataclass(frozen=True, slots=True)
class Preference:
    """Which results leave memory first: those of the lowest seconds / (bytes * steps**distance).

    ``steps`` are those until the next use. With ``sources``, results without a use stay for others
    that would be computed again from them, and the seconds are also those of results that would
    wait for this one.
    """

    distance: float = 1.0
    sources: bool = True


def rematerialize(
    program: Program, costs: StepCosts, limit: int, preference: Preference = Preference()
) -> Rematerialized:
    """The program with at most ``limit`` bytes of live temporaries and workspace at each step.

    ``program`` has no branches or loops, and each temporary is written by one step. Raises
    ``OverLimitError`` if the simulation finds no such program.
    """
    return _Simulation(program, costs, limit, preference).run()


@dataclass(eq=False, slots=True)
class _Simulation:
    """``resident`` maps the temporaries in memory to their numbers in the new program."""

    program: Program
    costs: StepCosts
    limit: int
    preference: Preference
    sizes: list[int] = field(init=False)
    writer: dict[int, int] = field(init=False, default_factory=dict)
    uses: dict[int, list[int]] = field(init=False, default_factory=dict)
    resident: dict[int, int] = field(init=False, default_factory=dict)
    used: int = field(init=False, default=0)
    at: int = field(init=False, default=0)
    reads: list[list[int]] = field(init=False)
    writes: list[list[int]] = field(init=False)
    absent: _Absent = field(init=False)
    extra: float = field(init=False, default=0.0)
    steps: list[Step] = field(init=False, default_factory=list)
    temporaries: list[int] = field(init=False, default_factory=list)
    latest: dict[BufferRef, BufferRef] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.absent = _Absent()
        self.sizes = temporary_bytes(self.program)
        self.reads = [_temporaries(step.reads) for step in self.program.steps]
        self.writes = [_temporaries(step.writes) for step in self.program.steps]
        for at, (reads, writes) in enumerate(zip(self.reads, self.writes, strict=True)):
            for number in reads:
                self.uses.setdefault(number, []).append(at)
            self.writer.update((number, at) for number in writes)

    def run(self) -> Rematerialized:
        for at in range(len(self.program.steps)):
            self.at = at
            self._execute(at)
        dims = tuple(self.program.temporaries[n] for n in self.temporaries)
        program = dataclasses.replace(self.program, steps=tuple(self.steps), temporaries=dims)
        return Rematerialized(program, self.extra)

    def _execute(self, at: int) -> None:
        """Step ``at`` after those whose results it needs again."""
        pending = [at]
        while pending:
            current = pending[-1]
            missing = [n for n in self.reads[current] if n not in self.resident]
            if missing:
                pending.append(self.writer[missing[0]])
                is_stuck = len(pending) > len(self.program.steps)
                if is_stuck or not self.costs.may_repeat[pending[-1]]:
                    raise OverLimitError
                continue
            pinned = {n for one in pending for n in self.reads[one]}
            self._emit(current, pinned)
            pending.pop()

    def _emit(self, at: int, pinned: set[int]) -> None:
        step = self.program.steps[at]
        writes = self.writes[at]
        self._make_room(sum(self.sizes[n] for n in writes) + self.costs.workspace[at], pinned)
        if at != self.at:
            self.extra += self.costs.seconds[at]
        refs = {edge: self.latest[edge] for edge in step.after if edge in self.latest}
        refs.update((self._ref(n), self._ref(self.resident[n])) for n in self.reads[at])
        for number in writes:
            self.temporaries.append(number)
            made = len(self.temporaries) - 1
            refs[self._ref(number)] = self.latest[self._ref(number)] = self._ref(made)
            if number not in self.resident:  # else another result of the step was needed again
                self.resident[number] = made
                self.used += self.sizes[number]
                self.absent.remove(number, self.costs.seconds[at])
        self.steps.append(step.moved(refs))
        if len(self.steps) > MOST_STEPS * len(self.program.steps) + 64:
            raise OverLimitError

    def _ref(self, number: int) -> BufferRef:
        return BufferRef(BufferKind.TEMPORARY, number)

    def _make_room(self, wanted: int, pinned: set[int]) -> None:
        if self.used + wanted <= self.limit:
            return
        scores = [(score, n) for n in self.resident
                  if n not in pinned and (score := self._score(n)) is not None]
        heapq.heapify(scores)
        while self.used + wanted > self.limit:
            if not scores:
                raise OverLimitError
            _, number = heapq.heappop(scores)
            now = self._score(number)  # neighbours may have left since
            if now is not None and scores and (now, number) > scores[0]:
                heapq.heappush(scores, (now, number))
                continue
            self.used -= self.sizes[number]
            del self.resident[number]
            self.absent.add(number, self.costs.seconds[self.writer[number]],
                            self._neighbours(number))

    def _score(self, number: int) -> tuple[bool, float] | None:
        """The lowest leaves first: results without need, then cheap, large and late ones."""
        size = self.sizes[number] or 1
        cost = self.costs.seconds[self.writer[number]]
        cost += self.absent.cost_of(self._neighbours(number))
        next_use = self._need(number)
        if next_use is None:
            return False, cost / size
        if not self.costs.may_repeat[self.writer[number]]:
            return None
        return True, cost / (size * (next_use - self.at + 1) ** self.preference.distance)

    def _next_use(self, number: int) -> int | None:
        uses = self.uses.get(number, ())
        position = bisect.bisect_left(uses, self.at)
        return None if position == len(uses) else uses[position]

    def _need(self, number: int) -> int | None:
        """The next step that reads a result, or one that it would be computed again from.

        A block that runs again starts from its input, though nothing else reads that any more. It
        is kept for results that are cheaper to compute from it than it is itself, or have left.
        """
        own = self._next_use(number)
        if own is not None or not self.preference.sources:
            return own
        density = self._density(number)
        level = [number]
        for _ in range(LEVELS):
            level = [made for n in level for user in self.uses.get(n, ())
                     for made in self.writes[user]]
            uses = [(n, use) for n in level if (use := self._next_use(n)) is not None]
            if uses:
                return min((use for n, use in uses
                            if n in self.absent or self._density(n) < density), default=None)
        return None

    def _density(self, number: int) -> float:
        """Seconds to compute a result from its operands, per byte."""
        return self.costs.seconds[self.writer[number]] / (self.sizes[number] or 1)

    def _neighbours(self, number: int) -> list[int]:
        """Absent results that this one is computed from, or that are computed from it and used."""
        found = [n for n in self.reads[self.writer[number]] if n in self.absent]
        for user in self.uses.get(number, ()) if self.preference.sources else ():
            found += [n for n in self.writes[user]
                      if n in self.absent and self._next_use(n) is not None]
        return found


class _Absent:
    """Results that have left memory, in groups that are computed again together, with their cost.

    A group is never split, which overestimates its cost, as in the article.
    """

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.parent: dict[int, int] = {}
        self.seconds: dict[int, float] = {}

    def __contains__(self, number: int) -> bool:
        return number in self.numbers

    def add(self, number: int, seconds: float, neighbours: Sequence[int]) -> None:
        """A result left memory; it joins the groups of its neighbours."""
        self.numbers.add(number)
        self.parent.setdefault(number, number)
        root = self._root(number)
        self.seconds[root] = self.seconds.get(root, 0.0) + seconds
        for other in neighbours:
            joined = self._root(other)
            if joined != root:
                self.parent[joined] = root
                self.seconds[root] += self.seconds.pop(joined)

    def remove(self, number: int, seconds: float) -> None:
        """A result is in memory again."""
        if number in self.numbers:
            self.numbers.remove(number)
            root = self._root(number)
            self.seconds[root] = max(self.seconds[root] - seconds, 0.0)

    def cost_of(self, neighbours: Sequence[int]) -> float:
        """Seconds to compute the groups of ``neighbours``."""
        return sum(self.seconds[root] for root in {self._root(n) for n in neighbours})

    def _root(self, number: int) -> int:
        while self.parent[number] != number:
            self.parent[number] = self.parent[self.parent[number]]
            number = self.parent[number]
        return number


def _temporaries(refs: Sequence[BufferRef]) -> list[int]:
    return [r.index for r in dict.fromkeys(refs) if r.kind is BufferKind.TEMPORARY]
