"""Blocks and segments: how a list of calls is cut for lanes that run at the same time.

A block is a basic block: calls between branches and the ends of loops. The calls of a block run as
their order of data allows, and all are done before the next block starts. A segment is a sequence
of calls of one lane within a block that waits for other lanes before its first call alone, and that
other lanes wait for after its last call alone: so it runs as one function.

The compiler and the runtime cut the same list, and so name the same segments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft.runtime.calls import DEVICE_COPY, BackJump, Condition, KernelCall
from weft.runtime.devices.sim.lanes import LaneKey
from weft.support.dataclass import dataclass

SEGMENT = "weft_segment_"


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls ``first`` to ``last`` - 1 of those of a lane in a block.

    ``calls`` are their numbers in the program. ``followers`` are the numbers, within the block, of
    the segments that wait for this one, which waits for ``num_before`` others.
    """

    lane: LaneKey
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


def lane_of_call(call: KernelCall) -> LaneKey:
    """The lane that makes a call: of its device, or of a link."""
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
    open_: dict[LaneKey, int] = {}  # the group that a lane's next call may join
    group_of: dict[int, int] = {}
    last: dict[LaneKey, int] = {}
    before: list[set[int]] = []
    for at in range(start, end):
        lane, call = lane_of_call(calls[at]), calls[at]
        waits = {group_of[one] for one in call.waits if one >= start}
        if waits or lane not in open_ or is_copy(call):
            groups.append([])
            before.append(waits | ({last[lane]} if lane in last else set()))
            open_[lane] = last[lane] = len(groups) - 1
        number = group_of[at] = open_[lane]
        groups[number].append(at)
        if at in awaited:
            del open_[lane]
    followers: list[list[int]] = [[] for _ in groups]
    for number, found in enumerate(before):
        for one in sorted(found):
            followers[one].append(number)
    return tuple(Segment(lane_of_call(calls[group[0]]), tuple(group), tuple(after), len(found))
                 for group, after, found in zip(groups, followers, before, strict=True))
