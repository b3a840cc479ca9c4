"""``WEFT_VERIFY``: proves that a program reads and returns only what it has written before.

A walk over the steps keeps, for each buffer, the branches under which it has been written (definite
assignment, as compilers of languages with local variables check it). A step that reads a buffer
must come after a write on each path that leads to it: the writes in both branches of a conditional
are one on every path. At the start of a loop the walk assumes the writes before its first
iteration; after a jump back it assumes that the condition of the jump was false. When a condition
is computed again, the walk drops what it knew under the old value.

It also proves that each buffer is in one memory, that copies go from one memory to another, and
that steps without a kernel are copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TypeAlias

from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    Jump,
    Path,
    Program,
    Step,
    guards_of,
)
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError

# Values of conditions: all of them hold.
Conditions: TypeAlias = "frozenset[tuple[BufferRef, bool]]"

_GIVEN = (BufferKind.INPUT, BufferKind.CONSTANT, BufferKind.STATE)


def verify_program(program: Program, when: str) -> None:
    """Raise ``InternalError`` for a program that reads memory before it is written.

    ``when`` says after what. The error names the buffer, the step and its path. Does nothing with
    ``WEFT_VERIFY=0``.
    """
    if config.verify >= 1:
        _Walk(program, when).run()
        _check_memories(program, when)


@dataclass(slots=True)
class _Walk:
    """``written`` are the branches under which each buffer is written, ``gone`` those left."""

    program: Program
    when: str
    written: dict[BufferRef, set[Conditions]] = field(default_factory=dict)
    gone: set[Conditions] = field(default_factory=set)

    def run(self) -> None:
        program = self.program
        conditions = {guard.condition for path in _paths(program) for guard in guards_of(path)}
        changing = _changing(program, conditions)
        jumps = list(program.jumps)
        for at, step in enumerate(program.steps):
            while jumps and jumps[0].at <= at:
                self._jump(jumps.pop(0))
            for condition in changing.get(at, ()):
                self._forget(condition)
            self._step(at, step, conditions)
        for jump in jumps:
            self._jump(jump)
        for number, port in enumerate(program.outputs):
            self._check(BufferRef(BufferKind.OUTPUT, number), (), f"output {port.name!r}")
        for count in program.counts:
            self._check(count.counts, (), f"size {count.symbol}")

    def _step(self, at: int, step: Step, conditions: set[BufferRef]) -> None:
        where = described(self.program, at)
        self._check_path(step.path, where)
        for ref in step.reads:
            self._check(ref, step.path, where)
        for ref in step.writes:
            if ref in conditions:
                self._forget(ref)
            self.written.setdefault(ref, set()).add(_conditions(step.path))

    def _jump(self, jump: Jump) -> None:
        self._check_path(jump.path, f"the jump before step {jump.at}")
        self.gone.add(_conditions(jump.path))

    def _check_path(self, path: Path, where: str) -> None:
        for number, scope in enumerate(path):
            if isinstance(scope, Guard):
                self._check(scope.condition, path[:number], where)

    def _check(self, ref: BufferRef, path: Path, where: str) -> None:
        if ref.kind not in _GIVEN and not self._is_written(ref, _conditions(path)):
            raise InternalError(
                f"{named(ref)} is read before it is written, after {self.when}", where=where,
                expected="a step before that writes it, on every path",
                got=f"path: {path_text(path)}",
                notes=[f"written under {_text(found)}" for found in
                       sorted(self.written.get(ref, ()), key=_text)])

    def _is_written(self, ref: BufferRef, given: Conditions) -> bool:
        """Whether a buffer is written wherever these conditions hold and control may come."""
        negated = _negated(given)
        if given & negated or any(path <= given for path in self.gone):
            return True  # no control comes here
        possible = [found - given for found in self.written.get(ref, ()) if not found & negated]
        if not all(possible):
            return True
        paths = [path - given for path in self.gone if not path & negated]
        undecided = min(possible or paths, key=len, default=None)
        if undecided is None:
            return False
        condition, _ = min(undecided, key=_literal_order)
        return all(self._is_written(ref, given | {(condition, value)}) for value in (False, True))

    def _forget(self, condition: BufferRef) -> None:
        """The condition gets another value: keep what holds for each of its values."""
        both = {(condition, False), (condition, True)}
        for ref, found in self.written.items():
            if any(one & both for one in found):
                self.written[ref] = {one - both for one in found
                                     if not one & both or self._is_written(ref, one - both)}
        self.gone = {path for path in self.gone if not path & both}


def _paths(program: Program) -> Iterable[Path]:
    return (one.path for one in (*program.steps, *program.jumps))


def _changing(program: Program, conditions: set[BufferRef]) -> dict[int, list[BufferRef]]:
    """For the first step of each loop, the conditions that the loop computes."""
    ends: dict[int, int] = {}
    for jump in program.jumps:
        ends[jump.loop.first] = max(jump.at, ends.get(jump.loop.first, 0))
    return {first: [ref for ref in dict.fromkeys(
        ref for step in program.steps[first:end] for ref in step.writes) if ref in conditions]
        for first, end in ends.items()}


def _check_memories(program: Program, when: str) -> None:
    """Each buffer is in one memory, and steps without a kernel copy between two."""
    found: dict[BufferRef, Device] = {}
    reader = reader_of_conditions(program)
    for at, step in enumerate(program.steps):
        where = described(program, at)
        is_copy = program.kernels[step.kernel].digest == DEVICE_COPY
        if is_copy != (step.source is not None) or (is_copy and step.source == step.device):
            raise InternalError(f"a copy within one memory, after {when}", where=where,
                                expected="two memories, or a kernel", got=str(step.source))
        places = [step.device] * len(step.buffers)
        if step.source is not None:
            places[0] = step.source
        for ref, device in (*zip(step.buffers, places, strict=True),
                            *((guard.condition, reader) for guard in step.guards)):
            if ref.kind in (BufferKind.INPUT, BufferKind.CONSTANT):
                continue  # the runtime uploads them
            if found.setdefault(ref, device) != device:
                raise InternalError(f"{named(ref)} is used in two memories, after {when}",
                                    where=where, expected=str(found[ref]), got=str(device))


def reader_of_conditions(program: Program) -> Device:
    """Where conditions are read: on the host, or by the launcher of a program's only device."""
    devices = {step.device for step in program.steps}
    return next(iter(devices)) if len(devices) == 1 else HOST


def described(program: Program, at: int) -> str:
    """A step in words."""
    step = program.steps[at]
    return f"step {at} ({program.kernels[step.kernel].text} on {step.device})"


def named(ref: BufferRef) -> str:
    """A buffer in words."""
    kinds = {BufferKind.TEMPORARY: "temporary", BufferKind.CONSTANT: "constant"}
    return f"{kinds.get(ref.kind, ref.kind.value)} {ref.index}"


def path_text(path: Path) -> str:
    """The branches and loops around a step."""
    parts = [f"if {named(scope.condition)} is {str(scope.expected).lower()}"
             if isinstance(scope, Guard) else f"loop {scope.number}" for scope in path]
    return ", ".join(parts) or "always"


def _text(found: Conditions) -> str:
    return path_text(tuple(Guard(*one) for one in sorted(found, key=_literal_order)))


def _conditions(path: Sequence[object]) -> Conditions:
    return frozenset((scope.condition, scope.expected) for scope in path
                     if isinstance(scope, Guard))


def _negated(given: Conditions) -> Conditions:
    return frozenset((ref, not value) for ref, value in given)


def _literal_order(one: tuple[BufferRef, bool]) -> tuple[str, int, bool]:
    return one[0].kind.value, one[0].index, one[1]
