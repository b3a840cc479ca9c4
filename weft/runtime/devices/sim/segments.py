"""Blocks and segments: how a list of calls is cut for workers that run at the same time.

A block is a basic block: calls between branches and the ends of loops. The calls of a block run as
their order of data allows, and all are done before the next block starts. A segment is a sequence
of calls of one worker within a block. It waits for other workers only before its first call, and
other workers wait for it only after its last call, so it runs as one function.

The compiler and the runtime cut the same list, and so name the same segments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft.runtime.calls import DEVICE_COPY, BackJump, Condition, KernelCall
from weft.runtime.devices.sim.workers import WorkerKey
from weft.support.dataclass import dataclass

SEGMENT = "weft_segment_"


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls ``first`` to ``last`` - 1 of those of a worker in a block.

    ``calls`` are their numbers in the program. ``followers`` are the numbers, within the block, of
    the segments that wait for this one, which waits for ``num_before`` others.
    """

    worker: WorkerKey
    calls: tuple[int, ...]
    followers: tuple[int, ...] = ()
    num_before: int = 0

    @property
    def symbol(self) -> str:
        """The function that makes the calls."""
        return f"{SEGMENT}{self.calls[0]}"


@dataclass(frozen=True, slots=True)
class Block:
    """Calls ``start`` to ``end`` - 1, made if all ``guards`` hold."""

    start: int
    end: int
    guards: tuple[Condition, ...]
    segments: tuple[Segment, ...]


def worker_of_call(call: KernelCall) -> WorkerKey:
    """The worker that makes a call: of its device, or of a link."""
    return (call.source if call.symbol == DEVICE_COPY else call.device), call.device


def is_copy(call: KernelCall) -> bool:
    """Whether the call has no kernel."""
    return call.symbol == DEVICE_COPY


def blocks_of(calls: Sequence[KernelCall], jumps: Sequence[BackJump]) -> tuple[Block, ...]:
    """The blocks of a program, in order; each non-empty."""
    cuts = {0, len(calls), *(jump.at for jump in jumps), *(jump.to for jump in jumps)}
    cuts |= {at for at in range(1, len(calls)) if calls[at].guards != calls[at - 1].guards}
    edges = sorted(cuts)
    return tuple(Block(start, end, calls[start].guards, _segments(calls, start, end))
                 for start, end in itertools.pairwise(edges))


def _segments(calls: Sequence[KernelCall], start: int, end: int) -> tuple[Segment, ...]:
    awaited = {before for at in range(start, end) for before in calls[at].waits}
    groups: list[list[int]] = []
    open_: dict[WorkerKey, int] = {}  # the group that a worker's next call may join
    group_of: dict[int, int] = {}
    last: dict[WorkerKey, int] = {}
    before: list[set[int]] = []
    for at in range(start, end):
        worker, call = worker_of_call(calls[at]), calls[at]
        waits = {group_of[one] for one in call.waits if one >= start}
        if waits or worker not in open_ or is_copy(call):
            groups.append([])
            before.append(waits | ({last[worker]} if worker in last else set()))
            open_[worker] = last[worker] = len(groups) - 1
        number = group_of[at] = open_[worker]
        groups[number].append(at)
        if at in awaited:
            del open_[worker]
    followers: list[list[int]] = [[] for _ in groups]
    for number, found in enumerate(before):
        for one in sorted(found):
            followers[one].append(number)
    return tuple(Segment(worker_of_call(calls[group[0]]), tuple(group), tuple(after), len(found))
                 for group, after, found in zip(groups, followers, before, strict=True))
