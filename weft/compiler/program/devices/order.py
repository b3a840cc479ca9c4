"""The order of steps and copies of programs for several devices.

A device runs its kernels in the order of the program, and a link its copies. A copy right after the
step that writes what it reads can run while kernels do: no other kernel has used the memory that it
writes since then, so it waits for none. The host issues the work of a GPU and goes on, but kernels
of the host block it: so they come as late as their data allow, and wait for the copies before them
alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.compiler.program.in_place import IN_PLACE
from weft.compiler.program.program import BufferRef, Program, Step
from weft.runtime.device import HOST


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


def host_steps_late(program: Program) -> Program:
    """The program with each step of the host after all steps of the device that need none of it.

    Steps keep their order where one reads or writes what the other writes.
    """
    if not is_straight(program) or all(step.device != HOST for step in program.steps):
        return program
    order: list[int] = []
    pending: list[int] = []  # steps of the host, and what depends on them
    accesses = [_accesses(program, step) for step in program.steps]
    for number, step in enumerate(program.steps):
        waits = [one for one in pending if _conflict(accesses[one], accesses[number])]
        if _is_on_host(step) or waits:
            pending.append(number)
        else:
            order.append(number)
    return reordered(program, (*order, *pending))


def _is_on_host(step: Step) -> bool:
    return step.device == HOST and step.source is None


def _accesses(program: Program, step: Step) -> tuple[frozenset[BufferRef], frozenset[BufferRef]]:
    """What a step reads or waits for, and what it writes, an input that it overwrites included."""
    written = set(step.writes)
    if step.source is None:
        reused = program.kernels[step.kernel].function.attrs.get(IN_PLACE)
        if isinstance(reused, int):
            written.add(step.reads[reused])
    return frozenset((*step.reads, *step.after)), frozenset(written)


def _conflict(first: tuple[frozenset[BufferRef], frozenset[BufferRef]],
              second: tuple[frozenset[BufferRef], frozenset[BufferRef]]) -> bool:
    (reads, writes), (later_reads, later_writes) = first, second
    return bool(writes & later_reads or writes & later_writes or reads & later_writes)
