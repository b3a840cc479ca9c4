"""Groups that reduce along an outer axis run in strips of the contiguous one.

A softmax over channels shares with its maxima and sums all axes but the channels. A strip of
neighbouring positions, all channels of it, goes through every stage while it is in the nearest
cache; maxima and sums of the strip are vectors in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weft import te
from weft.strategy.analysis import is_reduction, size_of, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.strategy.cpu.reduction.stages import KeptStages
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr

# A strip is so many vectors wide: they are the accumulators.
LEAST_VECTORS, MOST_VECTORS = 2, 8
# Lanes that are computed for each one needed. Where a row leaves more of them empty, vectors
# that run on into the next row are faster.
MOST_LANES = 1.3


@dataclass(frozen=True, slots=True)
class Strips:
    """The axes of the result, by place, that its reductions have too; the last is contiguous.

    An axis of one element in a reduction has no place.
    """

    places: tuple[int | None, ...]

    @staticmethod
    def of(kept: KeptStages, target: CpuTarget) -> Strips | None:
        """``None`` for a group of another form, and where strips would be too narrow."""
        result = kept.output
        read = [load for load in kept.loads_inside(result) if is_reduction(load.producer.op)]
        if is_reduction(result) or not read:
            return None
        found = {_places(load.indices, result.axis) for load in read}
        places = found.pop() if len(found) == 1 else None
        if places is None or places[-1] != len(result.axis) - 1:
            return None
        strips = Strips(places)
        is_inside = len(strips.shared) < len(result.axis)
        fits = is_inside and all(strips._fits(kept, op) for op in kept.ops)
        return strips if fits and strips._is_wide(kept, target) else None

    def _is_wide(self, kept: KeptStages, target: CpuTarget) -> bool:
        """Whether a strip has vectors enough to hide latency, and few empty lanes."""
        columns, width = size_of(kept.output.axis[-1].extent), self.width(kept, target)
        if width < LEAST_VECTORS:
            return False
        strip = width * target.lanes(kept.output.output(0).dtype)
        return -(-columns // strip) * strip <= MOST_LANES * columns

    @property
    def shared(self) -> list[int]:
        return [place for place in self.places if place is not None]

    def _fits(self, kept: KeptStages, op: te.ComputeOp) -> bool:
        """Whether ``op`` walks the shared axes as the result does, and reads others at its own."""
        if is_reduction(op):
            own = op.axis
            if len(own) != len(self.places) or kept.contiguous_axis(op) is not own[-1]:
                return False
        else:
            if len(op.axis) != len(kept.output.axis):
                return False
            own = tuple(op.axis[0 if p is None else p] for p in self.places)
        for load in kept.loads_inside(op):
            at = load.indices
            if not is_reduction(load.producer.op):
                if len(at) != len(kept.output.axis):
                    return False
                at = tuple(at[0 if p is None else p] for p in self.places)
            if any(i is not axis.var
                   for i, axis, p in zip(at, own, self.places, strict=True) if p is not None):
                return False
        return True

    def width(self, kept: KeptStages, target: CpuTarget) -> int:
        """Vectors of a strip: as many as leave all that it goes through in the first cache.

        There may be none such.
        """
        result = kept.output
        lanes = target.lanes(result.output(0).dtype)
        positions = math.prod(size_of(result.axis[p].extent) for p in self.shared)
        depth = max(1, max(work_of(op) for op in kept.ops) // max(1, positions))
        vectors = target.l1_bytes // (2 * depth * lanes * result.output(0).dtype.itemsize)
        across = -(-size_of(result.axis[-1].extent) // lanes)
        widest = min(vectors, across, MOST_VECTORS)
        if not widest:
            return 0
        strips = -(-across // widest)
        return -(-across // strips)  # all about as wide


def _places(indices: Sequence[PrimExpr], axes: Sequence[te.IterVar]) -> (
        tuple[int | None, ...] | None):
    """Which of ``axes`` each index is, in order; ``None`` for any other index but a constant."""
    variables = [axis.var for axis in axes]
    places = tuple(variables.index(i) if i in variables else None for i in indices)
    known = [p for p in places if p is not None]
    constant = all(p is not None or size_of(i) == 0 for p, i in zip(places, indices, strict=True))
    return places if known == sorted(set(known)) and known and constant else None


def schedule_by_strips(ctx: CpuContext, kept: KeptStages, strips: Strips) -> None:
    """All stages inside one loop over strips."""
    s, result = ctx.schedule, kept.output
    lanes = ctx.target.lanes(result.output(0).dtype)
    stage = s[result.output(0)]
    shared = [stage.axis[p] for p in strips.shared]
    data = [axis for axis in stage.axis if axis not in shared]
    block, inside = stage.split(shared[-1], factor=strips.width(kept, ctx.target) * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.reorder(*shared[:-1], block, *data, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    outer = [*shared[:-1], block]
    task = stage.fuse(*outer) if len(outer) > 1 else block
    for op in kept.ops[:-1]:
        _schedule_inside(s[op.output(0)], lanes)
        s[op.output(0)].compute_at(stage, task)
    if sum(map(work_of, kept.ops)) >= PARALLEL_THRESHOLD and size_of(task.extent) > 1:
        stage.parallel(task)


def _schedule_inside(stage: te.Stage, lanes: int) -> None:
    """Vectors along the last axis; those of a reduction stay in registers."""
    *others, last = stage.axis
    vector, lane = stage.split(last, factor=lanes)
    stage.reorder(*others, *stage.reduce_axis, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    if stage.reduce_axis:
        stage.set_scope("local")
