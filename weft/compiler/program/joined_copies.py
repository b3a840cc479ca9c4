"""Removal of copies: a value is made in the buffer that it would be copied to.

Lowering copies the first value of a loop-carried tensor to the tensor's own buffer, and values of
branches to the buffer of the result. Where the copy is the last use of the value, both may be one
buffer, and the copy is not needed (copy coalescing: Chaitin, "Register allocation and spilling via
graph coloring", 1982).
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Mapping

from weft.compiler.program.memory_plan import LiveRange, live_ranges
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    Jump,
    Loop,
    Path,
    Program,
    Step,
    moved_path,
)
from weft.ir import Call, Function, Op


def join_copies(program: Program) -> Program:
    """The program without the copies that are the last use of their source."""
    ranges = live_ranges(program.steps, program.jumps)
    begins = _first_uses(program)
    targets: dict[BufferRef, BufferRef] = {}
    dropped: list[int] = []
    for at, step in enumerate(program.steps):
        if not _is_copy(program.kernels[step.kernel].function):
            continue
        source, target = step.buffers
        if source.kind is not BufferKind.TEMPORARY or begins[target] != at \
                or target.kind not in (BufferKind.TEMPORARY, BufferKind.OUTPUT):
            continue
        live = ranges[source.index]
        # A value from before a loop stays live in it, unless the copy is the last step: then
        # nothing in the loop changes the target.
        if live.last != at:
            continue
        if target.kind is BufferKind.TEMPORARY:
            ranges[target.index] = LiveRange(live.first, ranges[target.index].last)
        targets[source] = target
        dropped.append(at)
    if not dropped:
        return program
    return _without(program, dropped, {ref: _end(ref, targets) for ref in targets})


def _first_uses(program: Program) -> dict[BufferRef, int]:
    """The first step that touches each buffer."""
    found: dict[BufferRef, int] = {}
    for at, step in enumerate(program.steps):
        for ref in step.touched:
            found.setdefault(ref, at)
    return found


def _is_copy(function: Function) -> bool:
    body = function.body
    return (isinstance(body, Call) and isinstance(body.op, Op) and body.op.name == "copy"
            and body.args == function.params)


def _end(ref: BufferRef, targets: Mapping[BufferRef, BufferRef]) -> BufferRef:
    """The buffer after a chain of copies."""
    while ref in targets:
        ref = targets[ref]
    return ref


def _without(program: Program, dropped: Collection[int], refs: Mapping[BufferRef, BufferRef]
             ) -> Program:
    """The program without these steps, in ascending order, and with its buffers renamed."""
    numbers = list(dropped)

    def moved(at: int) -> int:
        return at - bisect.bisect_left(numbers, at)

    def renumbered(path: Path) -> Path:
        return tuple(scope if isinstance(scope, Guard) else Loop(scope.number, moved(scope.first))
                     for scope in path)

    def kept(step: Step) -> Step:
        step = step.moved(refs)
        return dataclasses.replace(step, path=renumbered(step.path))

    gone = set(numbers)
    steps = tuple(kept(step) for at, step in enumerate(program.steps) if at not in gone)
    jumps = tuple(Jump(moved(jump.at), Loop(jump.loop.number, moved(jump.loop.first)),
                       renumbered(moved_path(jump.path, refs))) for jump in program.jumps)
    counts = tuple(dataclasses.replace(count, at=moved(count.at)) for count in program.counts)
    return dataclasses.replace(program, steps=steps, jumps=jumps, counts=counts)
