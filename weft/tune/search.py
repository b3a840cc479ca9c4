"""Evolutionary search among the points of one kernel.

The fastest points so far are parents. Children differ from one parent in a few knobs (mutation), or
take each knob from one of two (crossover); some are drawn anew. Those that cannot be scheduled are
dropped, the others are lowered and ranked by a cost model, and only the most promising are
measured. All choices follow from the seed and the measured times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from weft.strategy.implementation import Implementation
from weft.strategy.space import Knob, Point, Space, Value, split_name
from weft.support.dataclass import dataclass
from weft.support.errors import WeftError
from weft.tune.cost_model import Example, LearnedModel
from weft.tune.measure import Measurement
from weft.tune.task import KernelTask, LoweredPoint, lower_point

POPULATION = 8  # parents
CHILDREN = 12  # lowered and ranked in a round; the first rounds have fewer
MEASURED = 4  # of them
ATTEMPTS = 80  # draws to find the children of a round
CROSSOVER, FRESH = 0.25, 0.15  # shares of the children
NEIGHBOUR = 0.7  # of mutations: to a value next to it
# Implementations that the machine model expects to be this many times slower are not measured.
HOPELESS = 4.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that can be measured."""

    name: str
    example: Example


@dataclass(eq=False, slots=True)
class KernelSearch:
    """The state of the search for one kernel: ``gains`` of measured points, and what failed."""

    task: KernelTask
    model: LearnedModel
    seed: int = 0
    gains: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    stale: int = 0  # rounds without a faster point
    _lowered: dict[str, Candidate | None] = field(default_factory=dict)
    _programs: set[tuple[float, ...]] = field(default_factory=set)
    _random: random.Random = field(default_factory=random.Random)
    _spaces: Mapping[str, Space] = field(default_factory=dict)
    _reference: LoweredPoint | None = None

    def __post_init__(self) -> None:
        self._random.seed(self.task.seed(self.seed))
        self._spaces = self.task.spaces
        self._reference = lower_point(self.task, self.task.default)
        self._programs.add(self._reference.features)
        self.gains[self.task.default.name] = 1.0

    @property
    def reference(self) -> LoweredPoint:
        """The loops of the cost model's choice."""
        assert self._reference is not None
        return self._reference

    @property
    def best(self) -> str:
        """The fastest point so far; the model's choice until one is faster."""
        return max(self.gains, key=lambda name: self.gains[name])

    @property
    def gain(self) -> float:
        return self.gains[self.best]

    @property
    def is_exhausted(self) -> bool:
        """Whether all points are known."""
        points = sum(space.size for space in self._spaces.values())
        others = sum(1 for one in self.task.implementations if one.name not in self._spaces)
        return len(self._lowered) >= points + others

    def propose(self) -> list[Candidate]:
        """The points to measure next, the most promising first; none if no new one is found."""
        found = [c for c in self._children() if c is not None]
        gains = self.model.gains([c.example for c in found])
        ranked = [c for _, c in sorted(zip(gains, found, strict=True), key=lambda one: -one[0])]
        # One of the others, so that the model also learns where it is wrong.
        rest = ranked[MEASURED - 1:]
        return [*ranked[:MEASURED - 1], *([self._random.choice(rest)] if rest else [])]

    def report(self, candidate: Candidate, found: Measurement | str) -> None:
        """Take the result of a point that ``propose`` gave."""
        if isinstance(found, str):
            self.failed[candidate.name] = found
            return
        self.gains[candidate.name] = found.gain
        self.model.add(candidate.example, found.gain)

    def end_round(self, before: float) -> None:
        """Count a round that began with the gain ``before``."""
        self.rounds += 1
        self.stale = 0 if self.gain > before * 1.01 else self.stale + 1

    def recall(self, name: str, gain: float | None, status: str) -> None:
        """Take the result of a point from an earlier run."""
        if name == self.task.default.name or self._named(name) is None:
            return
        self._lowered[name] = None  # not proposed again
        if gain is None:
            self.failed[name] = status
        else:
            self.gains[name] = gain

    def _children(self) -> Iterator[Candidate | None]:
        """New points that can be scheduled, in the first round the other implementations too."""
        if self.rounds == 0:
            for one in self.task.implementations[1:]:
                if one.name not in self._lowered:
                    yield self._candidate(one.name)
        count = 0
        for _ in range(ATTEMPTS):
            name = self._draw()
            if name is None or name in self._lowered:
                continue
            candidate = self._candidate(name)
            if candidate is not None:
                yield candidate
                count += 1
                # Early rounds rank little: what they measure teaches the next ones.
                if count == min(CHILDREN, MEASURED * (1 + self.rounds)):
                    return

    def _candidate(self, name: str) -> Candidate | None:
        implementation, found = self._named(name), None
        if implementation is not None:
            try:
                found = lower_point(self.task, implementation)
            except WeftError:  # it does not fit the registers beside the fused operators
                found = None
        candidate = None
        if found is not None and not (found.features and found.features in self._programs):
            self._programs.add(found.features)
            gain = self.reference.predicted / max(found.predicted, 1e-12)
            if gain * HOPELESS > 1:
                candidate = Candidate(name, Example(found.features, self.reference.features, gain))
        self._lowered[name] = candidate
        return candidate

    def _named(self, name: str) -> Implementation | None:
        space = self._spaces.get(split_name(name)[0])
        found = None if space is None else space.named(name)
        return found or next((one for one in self.task.implementations if one.name == name), None)

    def _draw(self) -> str | None:
        parents = self._parents()
        draw = self._random.random()
        if not self._spaces:
            return None
        if not parents or draw < FRESH:
            space = self._random.choice(list(self._spaces.values()))
            return space.name_of({k.name: self._random.choice(k.values) for k in space.knobs})
        space, point = self._random.choice(parents)
        if draw < FRESH + CROSSOVER:
            mates = [other for base, other in parents if base is space]
            mate = self._random.choice(mates)
            point = {name: self._random.choice((value, mate[name]))
                     for name, value in point.items()}
        return space.name_of(self._mutated(space, point))

    def _parents(self) -> Sequence[tuple[Space, Point]]:
        fastest = sorted(self.gains, key=lambda name: (-self.gains[name], name))[:POPULATION]
        found = []
        for name in fastest:
            for space in self._spaces.values():
                point = space.point_of(name)
                if point is not None:
                    found.append((space, point))
        return found

    def _mutated(self, space: Space, point: Point) -> Point:
        """``point`` with one other value, or several."""
        open_knobs = [knob for knob in space.knobs if len(knob.values) > 1]
        count = 1
        while count < len(open_knobs) and self._random.random() < 0.35:
            count += 1
        changed = dict(point)
        for knob in self._random.sample(open_knobs, count):
            changed[knob.name] = self._other(knob, point)
        return changed

    def _other(self, knob: Knob, point: Point) -> Value:
        at = knob.values.index(point[knob.name])
        if self._random.random() < NEIGHBOUR:
            near = [n for n in (at - 2, at - 1, at + 1, at + 2) if 0 <= n < len(knob.values)]
            return knob.values[self._random.choice(near)]
        return self._random.choice([v for v in knob.values if v != point[knob.name]])
