"""Order of steps: a step that frees memory runs as soon as it can.

Lowering visits results one after the other, so in a gradient program the gradients of weights would
wait until that of the input is complete, with everything that they read in memory. Here the steps
keep their order, but after each step those follow that are ready and free at least as many bytes as
they allocate (the list scheduling of XLA's memory schedulers).

Control edges are the orders that buffers do not show: ``annotation.barrier`` is an alias of its
first operand, and effects need not read each other. Each step names the buffers whose writers it
waits for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from weft.compiler.program.memory_plan import aligned, live_ranges
from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.ir import Expr, Function, post_order, typical_size
from weft.transform.analysis.graph import traits_of

# Another order must reduce the peak by this share; else the order of the program stays.
WORTHWHILE = 0.95


def in_order_of_least_memory(program: Program) -> Program:
    """The program with its steps in an order with a lower peak of live bytes, if that is lower.

    Programs with branches or loops, and with sizes that data determines, stay as they are.
    """
    if program.jumps or program.counts or any(step.path for step in program.steps):
        return program
    order = _Scheduler(program).run()
    changed = dataclasses.replace(program, steps=tuple(program.steps[at] for at in order))
    return changed if live_peak(changed) < WORTHWHILE * live_peak(program) else program


def temporary_bytes(program: Program) -> list[int]:
    """The aligned bytes of each temporary, at typical sizes of symbols."""
    return [aligned(typical_size(size)) for size in program.temporaries]


def live_peak(program: Program) -> int:
    """The largest number of bytes of temporaries that are live at one step."""
    sizes = temporary_bytes(program)
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for number, live in live_ranges(program.steps, program.jumps).items():
        starts[live.first] = starts.get(live.first, 0) + sizes[number]
        ends[live.last] = ends.get(live.last, 0) + sizes[number]
    now = peak = 0
    for at in range(len(program.steps)):
        now += starts.get(at, 0)
        peak = max(peak, now)
        now -= ends.get(at, 0)
    return peak


class _Scheduler:
    """``waits`` counts the steps that a step still waits for; ``uses`` those left of a buffer."""

    def __init__(self, program: Program) -> None:
        self.steps: Sequence[Step] = program.steps
        self.sizes = temporary_bytes(program)
        self.waits = [0] * len(self.steps)
        self.followers: list[list[int]] = [[] for _ in self.steps]
        self.uses: dict[BufferRef, int] = {}
        self.readers: dict[BufferRef, list[int]] = {}
        self.done = [False] * len(self.steps)
        self.order: list[int] = []
        self._connect()

    def _connect(self) -> None:
        """Steps wait for the last writer of what they read, and for readers of what they write.

        They also wait for the writers that their control edges name.
        """
        writer: dict[BufferRef, int] = {}
        readers: dict[BufferRef, list[int]] = {}
        for at, step in enumerate(self.steps):
            before: set[int] = set()
            for ref in set(step.reads):
                self.uses[ref] = self.uses.get(ref, 0) + 1
                self.readers.setdefault(ref, []).append(at)
                before.update([writer[ref]] if ref in writer else ())
                readers.setdefault(ref, []).append(at)
            before.update(writer[ref] for ref in step.after if ref in writer)
            for ref in step.writes:
                before.update([writer[ref]] if ref in writer else ())
                before.update(readers.pop(ref, ()))
                writer[ref] = at
            before.discard(at)
            self.waits[at] = len(before)
            for other in before:
                self.followers[other].append(at)

    def run(self) -> list[int]:
        """The numbers of the steps in their new order."""
        for at in range(len(self.steps)):
            if not self.done[at]:
                self._take(at)
        return self.order

    def _take(self, at: int) -> None:
        pending = [at]
        while pending:
            current = pending.pop()
            if self.done[current]:
                continue
            self.done[current] = True
            self.order.append(current)
            touched: set[int] = set()
            for follower in self.followers[current]:
                self.waits[follower] -= 1
                touched.add(follower)
            for ref in set(self.steps[current].reads):
                self.uses[ref] -= 1
                if self.uses[ref] == 1:  # its last reader frees it
                    touched.update(self.readers[ref])
            ready = [s for s in touched
                     if not self.done[s] and not self.waits[s] and self._grows_by(s) <= 0]
            pending.extend(sorted(ready, reverse=True))

    def _grows_by(self, at: int) -> int:
        """Bytes that a step allocates less those that it frees."""
        step = self.steps[at]
        freed = sum(self._bytes(r) for r in set(step.reads) if self.uses[r] == 1)
        return sum(map(self._bytes, step.writes)) - freed

    def _bytes(self, ref: BufferRef) -> int:
        return self.sizes[ref.index] if ref.kind is BufferKind.TEMPORARY else 0


class ControlEdges:
    """What the value of each expression waits for, and the last effect."""

    def __init__(self) -> None:
        self._after: dict[Expr, tuple[BufferRef, ...]] = {}
        self._last_effect: tuple[BufferRef, ...] = ()

    def alias(self, node: Expr, operands: Iterable[Expr], after: Iterable[BufferRef] = ()) -> None:
        """``node`` has the memory of ``operands``, and is available once ``after`` is written."""
        found = tuple(dict.fromkeys((*self._of(operands), *after)))
        if found:
            self._after[node] = found

    def before_step(self, function: Function, operands: Iterable[Expr],
                    writes: Sequence[BufferRef]) -> tuple[BufferRef, ...]:
        """The buffers that a kernel waits for, which computes ``writes`` from ``operands``."""
        after = self._of(operands)
        if any(traits_of(node).has_effect for node in post_order(function.body)):
            after = (*after, *self._last_effect)
            self._last_effect = tuple(writes)
        return tuple(dict.fromkeys(after))

    def _of(self, operands: Iterable[Expr]) -> tuple[BufferRef, ...]:
        if not self._after:
            return ()
        return tuple(ref for operand in operands for ref in self._after.get(operand, ()))
