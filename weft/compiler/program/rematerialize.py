"""Rematerialization: steps run again so that fewer results are in memory at once.

The steps are simulated in order under a limit. Where the results of a step do not fit, results that
are cheap to compute again, large, and used late leave memory; a later step that reads one makes its
step run again, and those that it reads in turn if they have left too. This is dynamic tensor
rematerialization (Kirisame et al. 2021, "Dynamic Tensor Rematerialization") at compile time, where
the next use of each result is known: it takes the place of the time since the last use.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.compiler.program.step_order import temporary_bytes

# A program never grows to more than this multiple of its steps.
MOST_STEPS = 8

# So many results are compared when one has to leave memory.
CANDIDATES = 48


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

    ``steps`` are those until the next use.
    """

    distance: float = 1.0


def rematerialize(
    program: Program, costs: StepCosts, limit: int, preference: Preference = Preference()
) -> Rematerialized:
    """The program with at most ``limit`` bytes of live temporaries and workspace at each step.

    ``program`` has no branches or loops, and each temporary is written by one step. Raises
    ``OverLimitError`` if the simulation finds no such program.
    """
    return _Simulation(program, costs, limit, preference.distance).run()


@dataclass(eq=False, slots=True)
class _Simulation:
    """``resident`` maps the temporaries in memory to their numbers in the new program."""

    program: Program
    costs: StepCosts
    limit: int
    distance: float
    sizes: list[int] = field(init=False)
    writer: dict[int, int] = field(init=False, default_factory=dict)
    uses: dict[int, list[int]] = field(init=False, default_factory=dict)
    resident: dict[int, int] = field(init=False, default_factory=dict)
    used: int = field(init=False, default=0)
    at: int = field(init=False, default=0)
    extra: float = field(init=False, default=0.0)
    steps: list[Step] = field(init=False, default_factory=list)
    temporaries: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.sizes = temporary_bytes(self.program)
        for at, step in enumerate(self.program.steps):
            for number in _temporaries(step.reads):
                self.uses.setdefault(number, []).append(at)
            for number in _temporaries(step.writes):
                self.writer[number] = at

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
            missing = [n for n in _temporaries(self.program.steps[current].reads)
                       if n not in self.resident]
            if missing:
                pending.append(self.writer[missing[0]])
                is_stuck = len(pending) > len(self.program.steps)
                if is_stuck or not self.costs.may_repeat[pending[-1]]:
                    raise OverLimitError
                continue
            pinned = {n for one in pending for n in _temporaries(self.program.steps[one].reads)}
            self._emit(current, pinned)
            pending.pop()

    def _emit(self, at: int, pinned: set[int]) -> None:
        step = self.program.steps[at]
        writes = _temporaries(step.writes)
        self._make_room(sum(self.sizes[n] for n in writes) + self.costs.workspace[at], pinned)
        if at != self.at:
            self.extra += self.costs.seconds[at]
        refs = {BufferRef(BufferKind.TEMPORARY, n): self._ref(self.resident[n])
                for n in _temporaries(step.reads)}
        for number in writes:
            self.temporaries.append(number)
            made = len(self.temporaries) - 1
            refs[BufferRef(BufferKind.TEMPORARY, number)] = self._ref(made)
            if number not in self.resident:  # else another result of the step was needed again
                self.resident[number] = made
                self.used += self.sizes[number]
        self.steps.append(step.moved(refs))
        if len(self.steps) > MOST_STEPS * len(self.program.steps) + 64:
            raise OverLimitError

    def _ref(self, number: int) -> BufferRef:
        return BufferRef(BufferKind.TEMPORARY, number)

    def _make_room(self, wanted: int, pinned: set[int]) -> None:
        if self.used + wanted <= self.limit:
            return
        while self.used + wanted > self.limit:
            # What one step alone costs tells which results are worth the whole calculation.
            quick = {n: self._score(n, self.costs.seconds[self.writer[n]])
                     for n in self.resident if n not in pinned}
            known = sorted((s, n) for n, s in quick.items() if s is not None)[:CANDIDATES]
            if not known:
                raise OverLimitError
            costs: dict[int, float] = {}
            exact = [(self._score(n, self._cost(n, costs)) or (True, math.inf), n)
                     for _, n in known]
            for _, number in sorted(exact)[:max(1, len(exact) // 4)]:
                self.used -= self.sizes[number]
                del self.resident[number]
                if self.used + wanted <= self.limit:
                    return

    def _score(self, number: int, cost: float) -> tuple[bool, float] | None:
        """Lowest first: results without a later use, then cheap, large and late ones."""
        size = self.sizes[number] or 1
        uses = self.uses.get(number, ())
        position = bisect.bisect_left(uses, self.at)
        if position == len(uses):
            return False, cost / size
        if not self.costs.may_repeat[self.writer[number]]:
            return None
        later = (uses[position] - self.at + 1) ** self.distance
        return True, cost / (size * later)

    def _cost(self, number: int, costs: dict[int, float]) -> float:
        """Seconds to compute a result again, with all that it needs and that has left memory."""
        pending = [number]
        while pending:
            current = pending[-1]
            if current in costs:
                pending.pop()
                continue
            writer = self.writer[current]
            needed = [n for n in _temporaries(self.program.steps[writer].reads)
                      if n not in self.resident]
            waiting = [n for n in needed if n not in costs]
            if waiting:
                pending += waiting
                continue
            costs[current] = self.costs.seconds[writer] + sum(costs[n] for n in needed)
            pending.pop()
        return costs[number]


def _temporaries(refs: Sequence[BufferRef]) -> list[int]:
    return [r.index for r in dict.fromkeys(refs) if r.kind is BufferKind.TEMPORARY]
