"""The order of steps and copies: kernels by their simulated start, copies as early as they can be.

A device runs its kernels in the order of the program, and a link its copies. A copy that comes
right after what it reads can run while kernels do: memory that is free there is free of kernels
that the copy would have to wait for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.compiler.program.program import BufferRef, Program


def is_straight(program: Program) -> bool:
    """Whether the steps may be reordered: there are no branches, loops and counted sizes."""
    return not (program.jumps or program.counts or any(step.path for step in program.steps))


def reordered(program: Program, order: Sequence[int]) -> Program:
    """The program with its steps in another order, which their data allow."""
    return dataclasses.replace(program, steps=tuple(program.steps[at] for at in order))


def copies_early(program: Program) -> Program:
    """The program with each copy behind the step that writes what it reads."""
    if not is_straight(program):
        return program
    written: dict[BufferRef, int] = {}
    # The step that a step follows, the number of moved copies up to that, and its own number.
    keys: list[tuple[int, int, int]] = []
    for at, step in enumerate(program.steps):
        key = at, 0, at
        if step.source is not None and step.writes[0] not in written:
            before = written.get(step.buffers[0])
            base, depth = (-1, 0) if before is None else keys[before][:2]
            key = base, depth + 1, at
        keys.append(key)
        for ref in step.writes:
            written[ref] = at
    return reordered(program, sorted(range(len(keys)), key=keys.__getitem__))
