"""Which calls of other lanes a call waits for: those that it would race with in memory.

Two calls that use the same bytes, one of them writing, run in the order of the program: also where
a buffer takes the memory of another that is not needed any more. A lane runs its calls in order, so
a call waits for the last one of a lane only, and for none that it already follows by way of others
(vector clocks: Fidge 1988, Mattern 1989). Control edges are waits, too.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from weft.codegen.launch import Launch
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.program.program import BufferRef, Program, Step, buffer_bytes
from weft.runtime.device import HOST, Device
from weft.runtime.devices.sim.workers import WorkerKey
from weft.runtime.manifest import Argument
from weft.support.dataclass import dataclass

# A memory, or a buffer that has a memory of its own.
_Space: TypeAlias = "tuple[object, ...]"


@dataclass(frozen=True, slots=True)
class _Access:
    """Bytes ``start`` to ``end`` - 1 of a space."""

    space: _Space
    start: int
    end: int
    writes: bool


def lane_waits(program: Program, launches: Sequence[Launch], facts: Sequence[KernelFacts]
               ) -> list[tuple[int, ...]]:
    """For each step, the numbers of the steps of other lanes that it waits for, in order."""
    accesses = [list(accesses_of(program, step, launch, facts[step.kernel]))
                for step, launch in zip(program.steps, launches, strict=True)]
    spaces = spaces_of(accesses)
    clocks: list[Mapping[WorkerKey, int]] = []
    lasts: dict[WorkerKey, int] = {}
    found = []
    writers: dict[BufferRef, int] = {}
    for at, step in enumerate(program.steps):
        lane = _lane(step)
        before = {other for access in accesses[at] for other in spaces[access.space].note(
            access, at)}
        before |= {writers[ref] for ref in step.after if ref in writers}
        writers.update(dict.fromkeys(step.writes, at))
        clock = dict(clocks[lasts[lane]]) if lane in lasts else {}
        waits = []
        for other in sorted(before, reverse=True):
            theirs = clocks[other]
            own_lane = _lane(program.steps[other])
            if clock.get(own_lane, -1) < other:
                waits.append(other)
                for key, last in theirs.items():
                    clock[key] = max(last, clock.get(key, -1))
        clock[lane] = lasts[lane] = at
        clocks.append(clock)
        found.append(tuple(sorted(waits)))
    return found


def _lane(step: Step) -> WorkerKey:
    return (step.device if step.source is None else step.source), step.device


def accesses_of(program: Program, step: Step, launch: Launch, facts: KernelFacts
                ) -> Iterator[_Access]:
    """The bytes that a launch reads and writes."""
    places = [step.device] * len(launch.args)
    if step.source is not None:
        places[0] = step.source
    first_write = len(step.buffers) - step.num_outputs
    for number, (argument, device) in enumerate(zip(launch.args, places, strict=True)):
        if argument[0] in ("const", "size"):
            continue
        is_buffer = number < len(step.buffers)
        size = buffer_bytes(program, step.buffers[number]) if is_buffer else facts.workspace_bytes
        nbytes = size if isinstance(size, int) else 1
        yield _access(argument, device, nbytes, writes=number >= first_write)
    for guard in launch.path:
        condition = getattr(guard, "condition", None)
        if condition is not None:
            yield _access(condition, HOST, 1, writes=False)


def _access(argument: Argument, device: Device, nbytes: int, *, writes: bool) -> _Access:
    kind, value = argument
    if kind in ("input", "output", "state", "slot"):
        where = (kind, value, device) if kind == "slot" else (kind, value)
        return _Access(where, 0, 1, writes)
    return _Access((kind,), value, value + nbytes, writes)


@dataclass(slots=True)
class _SpaceUses:
    """A space in cells that no access divides, with the last accesses of each."""

    edges: list[int]
    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)

    def note(self, access: _Access, at: int) -> set[int]:
        """Note the access of step ``at``; the steps that it must follow."""
        found: set[int] = set()
        first = bisect.bisect_left(self.edges, access.start)
        for cell in range(first, bisect.bisect_left(self.edges, access.end)):
            if cell in self.writer:
                found.add(self.writer[cell])
            if access.writes:
                found.update(self.readers.pop(cell, ()))
                self.writer[cell] = at
            else:
                self.readers.setdefault(cell, []).append(at)
        found.discard(at)
        return found


def spaces_of(accesses: Sequence[Sequence[_Access]]) -> dict[_Space, _SpaceUses]:
    """The spaces of all accesses, with no access noted."""
    edges: dict[_Space, set[int]] = {}
    for several in accesses:
        for access in several:
            edges.setdefault(access.space, set()).update((access.start, access.end))
    return {space: _SpaceUses(sorted(found)) for space, found in edges.items()}
