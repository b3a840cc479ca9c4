"""The memory of a program with symbolic sizes: slots whose sizes are computed at run time.

The temporaries of a program with fixed sizes get offsets (``memory_plan``). Here the order of sizes
is known at run time only, so temporaries whose live ranges do not overlap share a slot, and a slot
is as large as its largest temporary: right for all sizes. Which ones share is decided by typical
sizes. The arena is the slots one after the other; ``weft_main`` computes their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.compiler.program.data_sizes import bounds_by_name, largest
from weft.compiler.program.memory_plan import ALIGNMENT, live_ranges
from weft.compiler.program.program import BufferKind, Program, Step
from weft.ir.symbol import size_of_dim
from weft.runtime.device import HOST, Device
from weft.runtime.sizes import Size, evaluate
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The slot of each temporary and of each step's workspace, and the sizes of the slots in bytes.

    A step without workspace has slot -1. ``devices`` say in whose memory each slot lies.
    """

    temporaries: tuple[int, ...]
    workspaces: tuple[int, ...]
    slots: tuple[Size, ...]
    devices: tuple[Device, ...]


@dataclass(slots=True)
class _Slot:
    number: int
    device: Device
    members: dict[Size, None] = field(default_factory=dict)  # in order, each once
    typical: int = 0


def plan_slots(program: Program, workspace_bytes: Mapping[int, Size],
               in_place: Mapping[int, int], typical: Mapping[str, int]) -> SlotPlan:
    """Slots for a program whose kernel ``k`` needs ``workspace_bytes.get(k, 0)`` of scratch.

    ``in_place`` are as for ``plan_memory``, ``typical`` are typical values of the symbols. Counted
    sizes have the values of their bounds.
    """
    return _Planner(program, typical).run(workspace_bytes, in_place)


class _Planner:
    def __init__(self, program: Program, typical: Mapping[str, int]) -> None:
        self.program = program
        self.typical = typical
        bounds = bounds_by_name(program.counts)
        self.sizes = [largest(size_of_dim(dim), bounds) for dim in program.temporaries]
        self.ranges = live_ranges(program.steps, program.jumps)
        self.last_uses: dict[int, list[int]] = {}
        for number, live in self.ranges.items():
            self.last_uses.setdefault(live.last, []).append(number)
        self.slots: list[_Slot] = []
        self.free: list[_Slot] = []
        self.slot_of: dict[int, _Slot] = {}

    def run(self, workspace_bytes: Mapping[int, Size], in_place: Mapping[int, int]) -> SlotPlan:
        workspaces = []
        for at, step in enumerate(self.program.steps):
            reused = in_place.get(step.kernel)
            if reused is None or step.writes[0].kind is not BufferKind.TEMPORARY \
                    or step.writes[0] in step.reads:
                self._allocate(at, step)
            else:
                source, target = step.reads[reused].index, step.writes[0].index
                self.slot_of[target] = self.slot_of[source]
                # The slot continues under the number of the result, and is freed with that.
                self.last_uses[at].remove(source)
            workspaces.append(self._scratch(workspace_bytes.get(step.kernel, 0), step.device))
            # Only now: results and workspace must not overlap the inputs that the step still reads.
            self.free += [self.slot_of[number] for number in self.last_uses.get(at, ())]
        slots = [self.slot_of.get(number) for number in range(len(self.sizes))]
        return SlotPlan(tuple(0 if slot is None else slot.number for slot in slots),
                        tuple(workspaces), tuple(_slot_size(slot) for slot in self.slots),
                        tuple(slot.device for slot in self.slots))

    def _allocate(self, at: int, step: Step) -> None:
        for ref in step.writes:
            if ref.kind is BufferKind.TEMPORARY and self.ranges[ref.index].first == at:
                self.slot_of[ref.index] = self._take(self.sizes[ref.index], step.device)

    def _scratch(self, size: Size, device: Device) -> int:
        if not size:
            return -1
        slot = self._take(size, device)
        self.free.append(slot)
        return slot.number

    def _take(self, size: Size, device: Device) -> _Slot:
        """A free slot with a temporary of this size, else the one that grows or wastes least."""
        wanted = evaluate(size, self.typical)
        free = [slot for slot in self.free if slot.device == device]
        same = next((slot for slot in free if size in slot.members), None)
        chosen = same or min(free, key=lambda slot: (
            max(0, wanted - slot.typical), max(0, slot.typical - wanted), slot.number),
            default=None)
        if chosen is None:
            chosen = _Slot(len(self.slots), device)
            self.slots.append(chosen)
        else:
            self.free.remove(chosen)
        chosen.members[size] = None
        chosen.typical = max(chosen.typical, wanted)
        return chosen


def _slot_size(slot: _Slot) -> Size:
    """The largest member, aligned."""
    fixed = max((size for size in slot.members if isinstance(size, int)), default=0)
    texts = [size for size in slot.members if isinstance(size, str)]
    if not texts:
        return -(-fixed // ALIGNMENT) * ALIGNMENT
    parts = [*texts, *([str(fixed)] if fixed else [])]
    largest = parts[0] if len(parts) == 1 else f"max({', '.join(parts)})"
    if "-" in largest:  # of a branch that these sizes do not take
        largest = f"max({largest}, 0)"
    return f"floordiv({largest} + {ALIGNMENT - 1}, {ALIGNMENT})*{ALIGNMENT}"


class SizeTable:
    """Builds ``Manifest.sizes``; equal sizes share an entry."""

    def __init__(self) -> None:
        self.entries: list[Size] = []
        self._numbers: dict[Size, int] = {}

    def number_of(self, size: Size) -> int:
        """The entry for a size."""
        if size not in self._numbers:
            self._numbers[size] = len(self.entries)
            self.entries.append(size)
        return self._numbers[size]

    def add_slots(self, plan: SlotPlan) -> tuple[list[int], dict[Device, Size]]:
        """The entries with the offsets of the slots, and the size of the arena of each device."""
        ends = {HOST: self.number_of(0)}
        offsets = []
        for size, device in zip(plan.slots, plan.devices, strict=True):
            end = ends.setdefault(device, self.number_of(0))
            offsets.append(end)
            ends[device] = self.number_of(f"_{end} + _{self.number_of(size)}")
        return offsets, {device: f"_{end}" for device, end in ends.items()}
