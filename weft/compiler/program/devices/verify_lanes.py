"""``WEFT_VERIFY``: proves that lanes make every call of a program, and none too early.

Lanes run at the same time what the order of the program puts one after the other. Here the blocks
and segments are those that the runtime cuts: each call is in one of them, a copy is in one of its
own, and of two calls that use the same bytes, one of them writing, the first ends before the second
starts, whatever the lanes do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from weft.codegen.launch import LaunchProgram
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.program.devices.waits import accesses_of, spaces_of
from weft.compiler.program.program import BufferRef, Program
from weft.compiler.program.verify import described
from weft.runtime.device import HOST
from weft.runtime.devices.sim.segments import Block, Segment, blocks_of, is_copy, worker_of_call
from weft.runtime.manifest import Manifest
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError


def verify_lanes(program: Program, launches: LaunchProgram, facts: Sequence[KernelFacts],
                 manifest: Manifest) -> None:
    """Raise ``InternalError`` for calls that no lane makes, or that race with others.

    ``manifest`` is that of ``program``, whose launches are ``launches``. The error names the steps.
    Does nothing with ``WEFT_VERIFY=0``.
    """
    if config.verify >= 1:
        blocks = blocks_of(manifest.steps, manifest.jumps)
        _check_segments(program, manifest, blocks)
        _check_inputs(program)
        _check_order(program, launches, facts, _Order.of(blocks))


def _check_segments(program: Program, manifest: Manifest, blocks: Sequence[Block]) -> None:
    """Each call is made once, on its lane; what is run as a copy is one copy."""
    segments = [segment for block in blocks for segment in block.segments]
    made = sorted(call for segment in segments for call in segment.calls)
    if made != list(range(len(program.steps))):
        raise InternalError("the lanes do not make each call once", got=str(made),
                            expected=f"the calls 0 to {len(program.steps) - 1}")
    for segment in segments:
        calls = [manifest.steps[number] for number in segment.calls]
        for number, call in zip(segment.calls, calls, strict=True):
            if worker_of_call(call) != segment.worker or (is_copy(call) and len(calls) > 1):
                raise InternalError("a call is in a segment that does not run it",
                                    where=described(program, number), got=str(segment.calls),
                                    expected="a segment of its lane; for a copy, one of its own")


def _check_inputs(program: Program) -> None:
    """Inputs and outputs are in the memory of the host, which no other device touches."""
    for at, step in enumerate(program.steps):
        places = [step.device] * len(step.buffers)
        if step.source is not None:
            places[0] = step.source
        for ref, device in zip(step.buffers, places, strict=True):
            if ref.kind.value in ("input", "output") and device != HOST:
                raise InternalError(f"a device uses an {ref.kind.value} in memory of the host",
                                    where=described(program, at), expected=str(HOST),
                                    got=str(device))


@dataclass(slots=True)
class _Order:
    """The block of each call, its segment, and the segments that end before each starts."""

    blocks: dict[int, int] = field(default_factory=dict)
    segments: dict[int, tuple[int, int]] = field(default_factory=dict)
    before: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    @staticmethod
    def of(blocks: Sequence[Block]) -> _Order:
        order = _Order()
        for number, block in enumerate(blocks):
            order.add(number, block.segments)
        return order

    def add(self, block: int, segments: Sequence[Segment]) -> None:
        """Note a block; segments are started by those that they follow."""
        for number, segment in enumerate(segments):
            own = self.before.setdefault((block, number), set())
            for after in segment.followers:
                self.before.setdefault((block, after), set()).update(own, (number,))
            for call in segment.calls:
                self.blocks[call], self.segments[call] = block, (block, number)

    def holds(self, first: int, second: int) -> bool:
        """Whether call ``first`` ends before call ``second`` starts; it is the earlier one."""
        if self.blocks[first] != self.blocks[second]:
            return True
        if self.segments[first] == self.segments[second]:
            return True
        return self.segments[first][1] in self.before[self.segments[second]]


def _check_order(program: Program, launches: LaunchProgram, facts: Sequence[KernelFacts],
                 order: _Order) -> None:
    accesses = [list(accesses_of(program, step, launch, facts[step.kernel]))
                for step, launch in zip(program.steps, launches.launches, strict=True)]
    spaces = spaces_of(accesses)
    writers: dict[BufferRef, int] = {}
    for at, step in enumerate(program.steps):
        before = {other for access in accesses[at] for other in spaces[access.space].note(
            access, at)}
        before |= {writers[ref] for ref in step.after if ref in writers}
        writers.update(dict.fromkeys(step.writes, at))
        for other in sorted(before):
            if not order.holds(other, at):
                raise InternalError("two calls on different lanes race in memory",
                                    where=described(program, at), got=described(program, other),
                                    expected="the second waits for the first")
