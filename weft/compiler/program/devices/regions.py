"""Removes the operator ``device_copy``: assigns devices to the steps on both sides, drops the step.

The buffer that a copy reads is computed on the copy's source, and the one that it writes is read on
its destination. All steps that share buffers with these run on the same device, up to other copies;
steps that share an input or a constant alone may run on different devices, each with its own copy.
The other steps may run anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft.compiler.program.devices.copies import copy_attrs
from weft.compiler.program.in_place import IN_PLACE
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    CountedSize,
    Guard,
    Jump,
    KernelSource,
    Loop,
    Path,
    Program,
    Step,
    moved_path,
)
from weft.ir.virtual_device import ANYWHERE, VirtualDevice
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.transform.external.generate_external import external_code_of

_SHARED_BY_DEVICES = (BufferKind.INPUT, BufferKind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Region:
    """Steps that are on one device, which ``wanted`` describes."""

    number: int
    wanted: VirtualDevice


@dataclass(frozen=True, slots=True)
class Dissolved:
    """A program without ``device_copy``. ``regions`` has one entry a step; ``None``: any device."""

    program: Program
    regions: tuple[Region | None, ...]


def dissolve(program: Program) -> Dissolved:
    """Take the copies out of a program.

    A copy stays where its result and what it reads cannot be one buffer. Raises ``TargetError``
    where copies contradict each other.
    """
    ends = [_ends(program.kernels[step.kernel]) for step in program.steps]
    if not any(ends):
        return Dissolved(program, (None,) * len(program.steps))
    regions = _regions(program, ends)
    refs, kept = _joined(program, [end is not None for end in ends])
    removed = {at for at, end in enumerate(ends) if end is not None and at not in kept}
    return Dissolved(_without(program, removed, refs),
                     tuple(region for at, region in enumerate(regions) if at not in removed))


def _ends(kernel: KernelSource) -> tuple[VirtualDevice, VirtualDevice] | None:
    """Source and destination of a copy; ``None`` for a kernel."""
    attrs = copy_attrs(kernel)
    if attrs is None:
        return None
    return VirtualDevice.parse(attrs.source), VirtualDevice.parse(attrs.destination)


class _Classes:
    """Steps and buffers that are connected (union-find), with what pins them."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}
        self._pins: dict[object, VirtualDevice] = {}

    def root(self, one: object) -> object:
        parents = self._parents
        parents.setdefault(one, one)
        while parents[one] != one:
            parents[one] = parents[parents[one]]
            one = parents[one]
        return one

    def join(self, one: object, other: object) -> None:
        self._parents[self.root(other)] = self.root(one)

    def pin(self, one: object, device: VirtualDevice, where: str) -> None:
        if device != ANYWHERE:
            root = self.root(one)
            try:
                self._pins[root] = self._pins.get(root, ANYWHERE).merged(device)
            except TargetError as error:
                raise error.at(where) from None

    def pin_of(self, one: object) -> VirtualDevice | None:
        return self._pins.get(self.root(one))


def _regions(program: Program, ends: Sequence[tuple[VirtualDevice, VirtualDevice] | None]
             ) -> list[Region | None]:
    classes = _Classes()
    for at, step in enumerate(program.steps):
        for ref in step.buffers if ends[at] is None else ():
            if ref.kind not in _SHARED_BY_DEVICES:
                classes.join(ref, at)
    for step, end in zip(program.steps, ends, strict=True):
        if end is not None:
            for ref, device in zip(step.buffers, end, strict=True):
                if ref.kind not in _SHARED_BY_DEVICES:
                    classes.pin(ref, device, f"device_copy of {ref.kind.value} {ref.index}")
    numbers: dict[object, int] = {}
    found: list[Region | None] = []
    for at, end in enumerate(ends):
        pin = None if end is not None else classes.pin_of(at)
        root = classes.root(at)
        found.append(None if pin is None else Region(numbers.setdefault(root, len(numbers)), pin))
    return found


def _joined(program: Program, copies: Sequence[bool]
            ) -> tuple[dict[BufferRef, BufferRef], set[int]]:
    """The buffers that stand for others once copies are gone, and the copies that stay."""
    accesses = _Accesses(program)
    refs: dict[BufferRef, BufferRef] = {}
    groups: dict[BufferRef, list[BufferRef]] = {}
    kept: set[int] = set()
    for at, step in enumerate(program.steps):
        if not copies[at]:
            continue
        source, target = (_standing_for(ref, refs) for ref in step.buffers)
        members = [*groups.get(source, [source]), *groups.get(target, [target])]
        chosen = accesses.common(source, target, members, at)
        if chosen is None:
            kept.add(at)
            continue
        other = target if chosen == source else source
        refs[other] = chosen
        groups[chosen] = members
    return {ref: _standing_for(ref, refs) for ref in refs}, kept


def _standing_for(ref: BufferRef, refs: Mapping[BufferRef, BufferRef]) -> BufferRef:
    while ref in refs:
        ref = refs[ref]
    return ref


class _Accesses:
    """Where each buffer is written, used last, and overwritten in place."""

    def __init__(self, program: Program) -> None:
        self.steps = program.steps
        self.writes: dict[BufferRef, list[int]] = {}
        self.last: dict[BufferRef, int] = {}
        self.overwritten: dict[BufferRef, int] = {}
        for at, step in enumerate(program.steps):
            for ref in step.touched:
                self.last[ref] = at
            for ref in step.writes:
                self.writes.setdefault(ref, []).append(at)
            reused = program.kernels[step.kernel].function.attrs.get(IN_PLACE)
            if isinstance(reused, int):
                self.overwritten[step.reads[reused]] = at
        self.is_looped = bool(program.jumps)

    def common(self, source: BufferRef, target: BufferRef, members: Sequence[BufferRef], at: int
               ) -> BufferRef | None:
        """The buffer that serves as both ends of the copy ``at``; ``None`` if none can."""
        if any(len(self.writes.get(ref, ())) > 1 for ref in (source, target)):
            return None
        last = max(self.last[ref] for ref in members)
        in_place = [self.overwritten[ref] for ref in members if ref in self.overwritten]
        if in_place and (self.is_looped or len(in_place) > 1 or in_place[0] < last
                         or any(ref.kind is not BufferKind.TEMPORARY for ref in members)):
            return None
        if target.kind is BufferKind.TEMPORARY:
            # A state may be overwritten while the copy of its old value is still read.
            return None if source.kind is BufferKind.STATE else source
        writers = self.writes.get(source, ())
        is_free = source.kind is BufferKind.TEMPORARY and target.kind is BufferKind.OUTPUT \
            and writers and self.steps[writers[0]].path == self.steps[at].path
        return target if is_free else None


def _without(program: Program, removed: set[int], refs: Mapping[BufferRef, BufferRef]) -> Program:
    """The program without some steps, on other buffers."""
    starts: list[int] = []
    steps: list[Step] = []
    after: dict[BufferRef, tuple[BufferRef, ...]] = {}  # what readers of a removed copy wait for
    for at, original in enumerate(program.steps):
        starts.append(len(steps))
        edges = tuple(dict.fromkeys((*original.after, *(
            edge for ref in original.reads for edge in after.get(ref, ())))))
        step = dataclasses.replace(original, after=edges) if after else original
        if at in removed:
            after.update({ref: edges for ref in step.writes if edges})
        else:
            steps.append(step)
    starts.append(len(steps))

    def path_of(path: Path) -> Path:
        return tuple(Loop(scope.number, starts[scope.first]) if isinstance(scope, Loop) else scope
                     for scope in moved_path(path, refs))

    return dataclasses.replace(
        program,
        steps=tuple(dataclasses.replace(step.moved(refs), path=path_of(step.path))
                    for step in steps),
        jumps=tuple(Jump(starts[jump.at], Loop(jump.loop.number, starts[jump.loop.first]),
                         path_of(jump.path)) for jump in program.jumps),
        counts=tuple(CountedSize(count.symbol, starts[count.at],
                                 refs.get(count.counts, count.counts), count.which, count.bound)
                     for count in program.counts))


def conditions_of(program: Program) -> set[BufferRef]:
    """The buffers that decide about branches, loops and sizes: the host reads them."""
    paths = [*(step.path for step in program.steps), *(jump.path for jump in program.jumps)]
    found = {scope.condition for path in paths for scope in path if isinstance(scope, Guard)}
    return found | {count.counts for count in program.counts}


def must_run_on_host(source: KernelSource) -> bool:
    """Whether no device runs the kernel: code of other generators, as Python functions."""
    return external_code_of(source.function) is not None
