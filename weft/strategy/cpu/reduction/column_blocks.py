"""Groups that reduce an outer axis run by blocks of columns, along the contiguous axis.

A softmax over channels shares all axes but the channels with its maxima and sums. A block of
adjacent positions, with all its channels, goes through every stage while it is in L1; the maxima
and sums of a block are vectors in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import is_reduction, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.schedule import pays_in_parallel
from weft.strategy.extents import size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import PrimExpr, int_value

# The width of a block in vectors, which are the accumulators of a reduction.
MIN_VECTORS, MAX_VECTORS = 2, 8
# Computed lanes per used lane. If rows leave more lanes unused, vectors that run across rows are
# faster.
MAX_LANE_OVERHEAD = 1.3


@dataclass(frozen=True, slots=True)
class ColumnBlocks:
    """The axes that the result shares with its reductions; the last one is contiguous.

    ``positions`` has, for each axis of a reduction, its position among the axes of the result;
    ``None`` for an axis of extent 1 that indexes nothing.
    """

    positions: tuple[int | None, ...]

    @staticmethod
    def of(kept: KeptStages, target: CpuTarget) -> ColumnBlocks | None:
        """``None`` for a group of another form, or if blocks would be too narrow."""
        result = kept.output
        read = [load for load in kept.loads_inside(result) if is_reduction(load.producer.op)]
        if is_reduction(result) or not read:
            return None
        found = {_positions(load.indices, result.axis) for load in read}
        positions = found.pop() if len(found) == 1 else None
        if positions is None or positions[-1] != len(result.axis) - 1:
            return None
        blocks = ColumnBlocks(positions)
        is_inside = len(blocks.shared) < len(result.axis)
        fits = is_inside and all(blocks._fits(kept, op) for op in kept.ops)
        return blocks if fits and blocks._is_wide(kept, target) else None

    def _is_wide(self, kept: KeptStages, target: CpuTarget) -> bool:
        """Whether a block has enough vectors to hide latency, and few unused lanes."""
        columns, width = size_of(kept.output.axis[-1].extent), self.width(kept, target)
        if width < MIN_VECTORS:
            return False
        block = width * target.lanes(kept.output.output(0).dtype)
        return -(-columns // block) * block <= MAX_LANE_OVERHEAD * columns

    @property
    def shared(self) -> list[int]:
        return [position for position in self.positions if position is not None]

    def _fits(self, kept: KeptStages, op: te.ComputeOp) -> bool:
        """Whether ``op`` has the shared axes, and reads other stages at its own indices."""
        if is_reduction(op):
            shared = op.axis
            if len(shared) != len(self.positions) or kept.contiguous_axis(op) is not shared[-1]:
                return False
        else:
            if len(op.axis) != len(kept.output.axis):
                return False
            shared = tuple(op.axis[0 if p is None else p] for p in self.positions)
        for load in kept.loads_inside(op):
            at = load.indices
            if not is_reduction(load.producer.op):
                if len(at) != len(kept.output.axis):
                    return False
                at = tuple(at[0 if p is None else p] for p in self.positions)
            if any(i is not axis.var
                   for i, axis, p in zip(at, shared, self.positions, strict=True) if p is not None):
                return False
        return True

    def width(self, kept: KeptStages, target: CpuTarget) -> int:
        """The width of a block in vectors: all its stages must fit in L1 together.

        0 if not even one vector fits.
        """
        result = kept.output
        lanes = target.lanes(result.output(0).dtype)
        positions = math.prod(size_of(result.axis[p].extent) for p in self.shared)
        # Elements per position of the widest stage. It may fill half of L1: the other half is for
        # its operands and the other stages.
        depth = max(1, max(work_of(op) for op in kept.ops) // max(1, positions))
        vectors = target.l1_bytes // (2 * depth * lanes * result.output(0).dtype.itemsize)
        across = -(-size_of(result.axis[-1].extent) // lanes)
        widest = min(vectors, across, MAX_VECTORS)
        if not widest:
            return 0
        blocks = -(-across // widest)
        return -(-across // blocks)  # blocks of nearly equal width


def _positions(indices: Sequence[PrimExpr], axes: Sequence[te.IterVar]) -> (
        tuple[int | None, ...] | None):
    """The position in ``axes`` of each index, ascending; ``None`` unless all are axes or 0."""
    variables = [axis.var for axis in axes]
    positions = tuple(variables.index(i) if i in variables else None for i in indices)
    known = [p for p in positions if p is not None]
    constant = all(p is not None or int_value(i) == 0
                   for p, i in zip(positions, indices, strict=True))
    return positions if known == sorted(set(known)) and known and constant else None


def schedule_by_column_blocks(ctx: CpuContext, kept: KeptStages, blocks: ColumnBlocks) -> None:
    """Compute all stages inside one loop over blocks of columns."""
    s, result = ctx.schedule, kept.output
    lanes = ctx.target.lanes(result.output(0).dtype)
    stage = s[result.output(0)]
    shared = [stage.axis[p] for p in blocks.shared]
    data = [axis for axis in stage.axis if axis not in shared]
    block, inside = stage.split(shared[-1], factor=blocks.width(kept, ctx.target) * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    # The reduced axis runs inside a block: maxima and sums of the block are reused while they are
    # in registers.
    stage.reorder(*shared[:-1], block, *data, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    outer = [*shared[:-1], block]
    task = stage.fuse(*outer) if len(outer) > 1 else block
    for op in kept.ops[:-1]:
        _schedule_inside(s[op.output(0)], lanes)
        s[op.output(0)].compute_at(stage, task)
    if pays_in_parallel(kept.ops, ctx.target) and size_of(task.extent) > 1:
        stage.parallel(task)


def _schedule_inside(stage: te.Stage, lanes: int) -> None:
    """Vectorize the last axis; the accumulators of a reduction stay in registers."""
    *others, last = stage.axis
    vector, lane = stage.split(last, factor=lanes)
    stage.reorder(*others, *stage.reduce_axis, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    # Vector and lane are constants once unrolled, so that the accumulators become registers.
    if stage.reduce_axis:
        stage.set_scope("local")
