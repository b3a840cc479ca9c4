"""The offsets of a program's temporaries: one arena per memory space.

A walk over the steps allocates the smallest free block that fits (best fit) and frees blocks after
their last use, joining adjacent ones. The live range of a temporary is the interval from its first
to its last use in the sequence of steps, which covers both branches of a conditional; loop-carried
values live to the end of their loop. The plan depends on sizes and order alone, so the same program
always gets the same offsets.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from weft.compiler.program.program import BufferKind, BufferRef, Jump, Program, Step, guards_of
from weft.ir.shape import Dim
from weft.runtime.device import HOST_MEMORY, MemorySpace
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError

ALIGNMENT = 64


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """``size`` rounded up to the alignment."""
    return -(-size // alignment) * alignment


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets of the temporaries, and of each step's workspace (0 if it needs no memory).

    ``arena_bytes`` has the size of the arena of each memory space; ``spaces`` the number of the
    space that each temporary lies in.
    """

    temporaries: tuple[int, ...]
    workspaces: tuple[int, ...]
    arena_bytes: tuple[int, ...]
    spaces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The live range of a temporary: the steps of its first write and its last use."""

    first: int
    last: int


def live_ranges(steps: Sequence[Step], jumps: Sequence[Jump] = ()) -> dict[int, LiveRange]:
    """The live range of every temporary that a step uses, by its number."""
    found: dict[int, LiveRange] = {}
    for at, step in enumerate(steps):
        for ref in step.touched:
            _extend(found, ref, at)
    for jump in jumps:
        # A jump under a branch reads its condition after the last step before it.
        for guard in guards_of(jump.path):
            _extend(found, guard.condition, jump.at - 1)
    changed = bool(jumps)
    while changed:  # a live range that one loop extends may reach into another loop
        changed = False
        for jump in jumps:
            for number, live in found.items():
                # A value from before the loop that is read inside is read again in the next
                # iteration.
                if live.first < jump.loop.first <= live.last < jump.at - 1:
                    found[number] = LiveRange(live.first, jump.at - 1)
                    changed = True
    return found


def _extend(found: dict[int, LiveRange], ref: BufferRef, at: int) -> None:
    if ref.kind is BufferKind.TEMPORARY:
        known = found.get(ref.index, LiveRange(at, at))
        found[ref.index] = LiveRange(known.first, max(known.last, at))


class FreeList:
    """Free blocks of a growing arena, ordered by offset; adjacent blocks are joined."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self.end = 0

    def take(self, size: int) -> int:
        """The offset of a block of ``size`` bytes: best fit, else at the end of the arena."""
        fitting = [(self._sizes[s], s) for s in self._starts if self._sizes[s] >= size]
        if fitting:
            # Of equal blocks the first, so that the plan is deterministic.
            _, start = min(fitting)
            self._carve(start, size)
            return start
        # A free block at the end of the arena grows rather than staying behind as a gap.
        last = self._starts[-1] if self._starts else None
        if last is not None and last + self._sizes[last] == self.end:
            self._remove(last)
            start = last
        else:
            start = self.end
        self.end = start + size
        return start

    def extend(self, size: int) -> int:
        """The offset of a block of ``size`` bytes at the end of the arena, never used before."""
        start = self.end
        self.end += size
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
                in_place: Mapping[int, int] | None = None,
                spaces: Sequence[MemorySpace] = (HOST_MEMORY,), *, fresh_copies: bool = False
                ) -> MemoryPlan:
    """Offsets for a program whose kernel ``k`` needs ``workspace_bytes.get(k, 0)`` of scratch.

    A temporary lies in the first of ``spaces`` of the device that writes it. The result of a kernel
    in ``in_place`` gets the memory of the input of that number, which has the same size and whose
    last use is this step. With ``fresh_copies``, what a copy between memories writes takes memory
    that no step before it has used, so that it need not wait for one. Raises ``InternalError`` if a
    device has no memory space, or if a step uses a temporary of another device.
    """
    return _Planner(program, spaces, fresh_copies=fresh_copies).run(workspace_bytes, in_place or {})


class _Planner:
    def __init__(self, program: Program, spaces: Sequence[MemorySpace], *,
                 fresh_copies: bool = False) -> None:
        self.program = program
        self.spaces = spaces
        self.fresh_copies = fresh_copies
        self.free = [FreeList() for _ in spaces]
        self.ranges = live_ranges(program.steps, program.jumps)
        self.last_uses: dict[int, list[int]] = {}
        for number, live in self.ranges.items():
            self.last_uses.setdefault(live.last, []).append(number)
        self.offsets = [0] * len(program.temporaries)
        self.space_of = [0] * len(program.temporaries)

    def run(self, workspace_bytes: Mapping[int, int], in_place: Mapping[int, int]) -> MemoryPlan:
        workspaces = []
        for at, step in enumerate(self.program.steps):
            space = self._space(step)
            reused = in_place.get(step.kernel)
            if reused is None or step.writes[0].kind is not BufferKind.TEMPORARY \
                    or step.writes[0] in step.reads:
                self._allocate(at, step, space)
            else:
                source, target = step.reads[reused].index, step.writes[0].index
                self.offsets[target] = self.offsets[source]
                self.space_of[target] = space
                # The block continues under the number of the result, and is freed with that.
                self.last_uses[at].remove(source)
            self._check_space(step, space)
            workspaces.append(self._scratch(workspace_bytes.get(step.kernel, 0), space))
            # Only now: results and workspace must not overlap the inputs that the step still reads.
            for number in self.last_uses.get(at, ()):
                self.free[self.space_of[number]].give_back(self.offsets[number],
                                                           self._bytes(number))
        return MemoryPlan(tuple(self.offsets), tuple(workspaces),
                          tuple(free.end for free in self.free), tuple(self.space_of))

    def _space(self, step: Step) -> int:
        """The number of the memory space of a step's device."""
        for number, space in enumerate(self.spaces):
            if space.device == step.device:
                return number
        raise InternalError(f"the device {step.device} has no memory space",
                            expected=", ".join(str(space.device) for space in self.spaces))

    def _allocate(self, at: int, step: Step, space: int) -> None:
        """Give memory to the temporaries that are first written at step ``at``."""
        for ref in step.writes:
            if ref.kind is BufferKind.TEMPORARY and self.ranges[ref.index].first == at:
                self.space_of[ref.index] = space
                free, nbytes = self.free[space], self._bytes(ref.index)
                is_fresh = self.fresh_copies and step.source is not None
                self.offsets[ref.index] = free.extend(nbytes) if is_fresh else free.take(nbytes)

    def _check_space(self, step: Step, space: int) -> None:
        for ref in step.buffers if step.source is None else step.writes:
            if ref.kind is BufferKind.TEMPORARY and self.space_of[ref.index] != space:
                raise InternalError(f"a kernel on {step.device} uses memory of another device",
                                    got=str(self.spaces[self.space_of[ref.index]].device))

    def _scratch(self, nbytes: int, space: int) -> int:
        """The offset of a workspace that is free again after its step."""
        size = aligned(nbytes, self.spaces[space].alignment)
        if not size:
            return 0
        start = self.free[space].take(size)
        self.free[space].give_back(start, size)
        return start

    def _bytes(self, number: int) -> int:
        return aligned(_fixed(self.program.temporaries[number]),
                       self.spaces[self.space_of[number]].alignment)


def _fixed(size: Dim) -> int:
    if not isinstance(size, int):
        raise InternalError("a memory plan of offsets needs fixed sizes", got=str(size))
    return size
