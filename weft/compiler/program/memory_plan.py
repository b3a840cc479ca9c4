"""Where the temporaries of a program lie in one arena.

A walk over the steps hands out the smallest free block that fits (best fit) and takes blocks back
after their last use, joining neighbours. Between a first and a last use in a line lie both branches
of a choice; what a loop finds at its start stays to its end, where the loop goes back. The plan
depends on sizes and order alone, so the same program always gets the same offsets.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.compiler.program.program import BufferKind, BufferRef, Jump, Program, Step, guards_of

ALIGNMENT = 64


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """``size`` rounded up to the alignment."""
    return -(-size // alignment) * alignment


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets of the temporaries, and of each step's workspace (0 where it has none)."""

    temporaries: tuple[int, ...]
    workspaces: tuple[int, ...]
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The steps at which a temporary is first written and last touched."""

    first: int
    last: int


def lifetimes(steps: Sequence[Step], jumps: Sequence[Jump] = ()) -> dict[int, Lifetime]:
    """The lifetime of every temporary that a step touches, by its number."""
    found: dict[int, Lifetime] = {}
    for at, step in enumerate(steps):
        for ref in step.touched:
            _touch(found, ref, at)
    for jump in jumps:
        for guard in guards_of(jump.path):
            _touch(found, guard.condition, jump.at - 1)
    changed = bool(jumps)
    while changed:  # what one loop prolongs may reach into another
        changed = False
        for jump in jumps:
            for number, life in found.items():
                if life.first < jump.loop.first <= life.last < jump.at - 1:
                    found[number] = Lifetime(life.first, jump.at - 1)
                    changed = True
    return found


def _touch(found: dict[int, Lifetime], ref: BufferRef, at: int) -> None:
    if ref.kind is BufferKind.TEMPORARY:
        known = found.get(ref.index, Lifetime(at, at))
        found[ref.index] = Lifetime(known.first, max(known.last, at))


class FreeList:
    """Free blocks of a growing arena, ordered by offset and joined where they touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self.end = 0

    def take(self, size: int) -> int:
        """The offset of a block of ``size`` bytes: best fit, else at the end of the arena."""
        fitting = [(self._sizes[s], s) for s in self._starts if self._sizes[s] >= size]
        if fitting:
            _, start = min(fitting)
            self._carve(start, size)
            return start
        last = self._starts[-1] if self._starts else None
        if last is not None and last + self._sizes[last] == self.end:
            self._remove(last)
            start = last
        else:
            start = self.end
        self.end = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Return a block."""
        if size == 0:
            return
        at = bisect.bisect(self._starts, start)
        if at < len(self._starts) and start + size == self._starts[at]:
            size += self._sizes[self._starts[at]]
            self._remove(self._starts[at])
        if at and (before := self._starts[at - 1]) + self._sizes[before] == start:
            self._sizes[before] += size
            return
        self._starts.insert(at, start)
        self._sizes[start] = size

    def _carve(self, start: int, size: int) -> None:
        left = self._sizes[start] - size
        self._remove(start)
        if left:
            self.give_back(start + size, left)

    def _remove(self, start: int) -> None:
        self._starts.remove(start)
        del self._sizes[start]


def plan_memory(program: Program, workspace_bytes: Mapping[int, int],
                in_place: Mapping[int, int] | None = None) -> MemoryPlan:
    """Offsets for a program whose kernel ``k`` needs ``workspace_bytes.get(k, 0)`` of scratch.

    The result of a kernel in ``in_place`` gets the memory of the input of that number, which has
    the same size and dies with the step.
    """
    lives = lifetimes(program.steps, program.jumps)
    dying: dict[int, list[int]] = {}
    for number, life in lives.items():
        dying.setdefault(life.last, []).append(number)
    free = FreeList()
    offsets = [0] * len(program.temporaries)
    workspaces = []
    for at, step in enumerate(program.steps):
        reused = (in_place or {}).get(step.kernel)
        if reused is not None:
            source, target = step.reads[reused].index, step.writes[0].index
            offsets[target] = offsets[source]
            dying[at].remove(source)
        for ref in () if reused is not None else step.writes:
            if ref.kind is BufferKind.TEMPORARY and lives[ref.index].first == at:
                offsets[ref.index] = free.take(aligned(program.temporaries[ref.index]))
        scratch = aligned(workspace_bytes.get(step.kernel, 0))
        workspaces.append(free.take(scratch) if scratch else 0)
        if scratch:
            free.give_back(workspaces[-1], scratch)
        for number in dying.get(at, ()):
            free.give_back(offsets[number], aligned(program.temporaries[number]))
    return MemoryPlan(tuple(offsets), tuple(workspaces), free.end)
