"""``WEFT_VERIFY``: proves that the launches of a program read from memory what was written there.

The memory plan gives the bytes of a temporary to other buffers before its first and after its last
use. A walk over the launches records which buffer the bytes of each memory hold. It walks each loop
twice, to find an iteration that overwrites a value of the next one, and both branches of a
conditional one after the other, in the order in which the plan lays them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from weft.codegen.launch import Launch, LaunchGuard, LaunchProgram
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    Program,
    Step,
    buffer_bytes,
)
from weft.compiler.program.verify import described, named, reader_of_conditions
from weft.runtime.device import Device
from weft.runtime.manifest import Argument
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError

# A memory, and a slot in it where sizes are symbols.
_Space: TypeAlias = "tuple[object, ...]"
# Kinds of arguments that lie in memory of their own.
_APART = ("input", "output", "state", "const", "size")


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes ``start`` to ``end`` - 1 of a space."""

    space: _Space
    start: int
    end: int

    def overlaps(self, other: _Bytes) -> bool:
        """Whether both have a byte in common."""
        return self.space == other.space and self.start < other.end and other.start < self.end


def verify_memory(program: Program, launches: LaunchProgram, facts: Sequence[KernelFacts]) -> None:
    """Raise ``InternalError`` where a launch does not do what its step says.

    ``launches`` are those of the steps after memory planning, ``facts`` those of the kernels. The
    error names the buffer and the step. Does nothing with ``WEFT_VERIFY=0``.
    """
    if config.verify >= 1:
        _check_launches(program, launches, facts)
        _Walk(program, launches.launches, facts).run()


def _check_launches(program: Program, launches: LaunchProgram, facts: Sequence[KernelFacts]
                    ) -> None:
    """There is one launch for each step: of its kernel, on its buffers, under its branches."""
    if len(launches.launches) != len(program.steps) or len(launches.jumps) != len(program.jumps):
        raise InternalError("the launches of a program are not its steps",
                            expected=f"{len(program.steps)} launches, {len(program.jumps)} jumps",
                            got=f"{len(launches.launches)}, {len(launches.jumps)}")
    for at, (step, launch) in enumerate(zip(program.steps, launches.launches, strict=True)):
        where, count = described(program, at), len(step.buffers)
        taken = [launch.args, *(variant.args for variant in launch.variants)]
        if launch.symbol != facts[step.kernel].symbol or launch.device != step.device:
            raise InternalError("a launch is not that of its step", where=where,
                                expected=f"{facts[step.kernel].symbol} on {step.device}",
                                got=f"{launch.symbol} on {launch.device}")
        if any(args[:count] != launch.args[:count] for args in taken) or not all(
                _fits(ref, argument) for args in taken
                for ref, argument in zip(step.buffers, args, strict=False)):
            raise InternalError("a launch has other buffers than its step", where=where,
                                expected=", ".join(map(named, step.buffers)), got=str(launch.args))
        guards = [(scope.condition, scope.expected) for scope in launch.path
                  if isinstance(scope, LaunchGuard)]
        if len(launch.path) != len(step.path) or len(guards) != len(step.guards) or not all(
                _fits(guard.condition, condition) and guard.expected is expected
                for guard, (condition, expected) in zip(step.guards, guards, strict=True)):
            raise InternalError("a launch is under other branches than its step", where=where)


def _fits(ref: BufferRef, argument: Argument) -> bool:
    """Whether an argument is of the kind of a buffer, and of its number."""
    kind, value = argument
    if ref.kind is BufferKind.TEMPORARY:
        return kind not in _APART
    return kind == ref.kind.value and (kind == "const" or value == ref.index)


@dataclass(slots=True)
class _Walk:
    """``held`` are the buffers whose values a space holds, and where."""

    program: Program
    launches: Sequence[Launch]
    facts: Sequence[KernelFacts]
    held: dict[_Space, dict[BufferRef, _Bytes]] = field(default_factory=dict)

    def run(self) -> None:
        for at in self._order():
            self._launch(at)

    def _order(self) -> Iterator[int]:
        """The numbers of the launches, those of a loop twice."""
        jumps, at = list(self.program.jumps), 0
        while True:
            back = next((jump for jump in jumps if jump.at == at), None)
            if back is not None:
                jumps.remove(back)
                at = back.loop.first
            elif at == len(self.launches):
                return
            else:
                yield at
                at += 1

    def _launch(self, at: int) -> None:
        step, launch = self.program.steps[at], self.launches[at]
        number = len(step.buffers) - step.num_outputs
        devices = [step.device] * len(step.buffers)
        if step.source is not None:
            devices[0] = step.source
        places = [self._place(ref, argument, device) for ref, argument, device in
                  zip(step.buffers, launch.args, devices, strict=False)]
        for ref, place in zip(step.reads, places, strict=False):
            self._check(ref, place, at)
        reader = reader_of_conditions(self.program)
        for scope, planned in zip(step.path, launch.path, strict=True):
            if isinstance(scope, Guard) and isinstance(planned, LaunchGuard):
                condition = scope.condition
                self._check(condition, self._place(condition, planned.condition, reader), at)
        made = [*zip(step.writes, places[number:], strict=True),
                *((None, place) for place in self._scratch(step, launch))]
        self._check_apart(at, step, places[:number], [place for _, place in made])
        for ref, place in made:
            if place is not None:
                self._write(ref, place)

    def _check(self, ref: BufferRef, place: _Bytes | None, at: int) -> None:
        if place is not None and self.held.get(place.space, {}).get(ref) != place:
            holders = [named(one) for one, found in self.held.get(place.space, {}).items()
                       if found.overlaps(place)]
            raise InternalError(
                f"the memory of {named(ref)} does not hold its value", where=described(
                    self.program, at), expected="the value as the last step before wrote it",
                got=", ".join(holders) or "memory that was not written")

    def _write(self, ref: BufferRef | None, place: _Bytes) -> None:
        held = self.held.setdefault(place.space, {})
        for other in [one for one, found in held.items() if found.overlaps(place)]:
            del held[other]
        if ref is not None:
            held[ref] = place

    def _check_apart(self, at: int, step: Step, reads: Sequence[_Bytes | None],
                     made: Sequence[_Bytes | None]) -> None:
        """A kernel writes over what it reads only where it works in place."""
        granted = self.facts[step.kernel].in_place
        for number, place in enumerate(made):
            others = [found for index, found in enumerate(reads)
                      if index != granted or number or found != place]
            for other in (*others, *made[:number]):
                if place is not None and other is not None and place.overlaps(other):
                    raise InternalError("a kernel writes over memory that it uses",
                                        where=described(self.program, at), got=str(place))

    def _place(self, ref: BufferRef, argument: Argument, device: Device) -> _Bytes | None:
        """The bytes of a temporary; ``None`` for memory of its own, and for no bytes."""
        if ref.kind is not BufferKind.TEMPORARY:
            return None
        return _bytes(argument, device, buffer_bytes(self.program, ref))

    def _scratch(self, step: Step, launch: Launch) -> Iterator[_Bytes | None]:
        """The workspaces of the kernel and of its variants, of which one alone runs."""
        nbytes, count = self.facts[step.kernel].workspace_bytes, len(step.buffers)
        found = {one for args in (launch.args, *(variant.args for variant in launch.variants))
                 for one in args[count:] if one[0] != "size"}
        return (_bytes(one, step.device, nbytes) for one in sorted(found))


def _bytes(argument: Argument, device: Device, nbytes: object) -> _Bytes | None:
    kind, value = argument
    if kind == "slot":
        return _Bytes((kind, device, value), 0, 1)
    if not isinstance(nbytes, int) or not nbytes:
        return None
    return _Bytes((kind, device), value, value + nbytes)
