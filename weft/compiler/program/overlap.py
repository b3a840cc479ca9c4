"""Orders the steps of a program so that a device works while the host does.

The host issues the work of a device and goes on, but its own kernels block it. So steps of the
device and copies come first where they do not depend on a pending step of the host, and a step of
the host waits for the copies before it alone. Programs with branches and loops keep their order.
"""

from __future__ import annotations

import dataclasses

from weft.compiler.program.in_place import IN_PLACE
from weft.compiler.program.program import BufferRef, Program, Step
from weft.runtime.device import HOST


def host_steps_late(program: Program) -> Program:
    """The program with each step of the host as late as its order allows.

    Steps keep their order where one reads or writes what the other writes.
    """
    if program.jumps or program.counts or any(step.path for step in program.steps) \
            or all(step.device != HOST for step in program.steps):
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
    return dataclasses.replace(program, steps=tuple(
        program.steps[number] for number in (*order, *pending)))


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
