"""Groups whose stages share axes: one thread block computes whole rows through all stages.

A row of a softmax, of a normalisation or of its gradient is read once from memory; maxima, sums and
rows that several stages read stay in registers and shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import te
from weft.strategy.analysis import is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.reduction.partials import (
    AttachPoint,
    BlockShape,
    bind_row,
    reduce_in_block,
)
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.extents import is_fixed, is_multiple
from weft.strategy.kept_stages import KeptStages


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How a group runs: the shared axes, the one whose indices are a block's rows, the threads.

    ``row_axis`` is a position in ``shared.result``.
    """

    shared: SharedAxes
    row_axis: int
    shape: BlockShape


def schedule_group(ctx: CudaContext, kept: KeptStages, plan: GroupPlan,
                   ops: tuple[te.ComputeOp, ...]) -> None:
    """Compute ``ops``, the result last, inside one loop over blocks of rows.

    ``kept`` has these and all other materialized stages of the kernel.
    """
    s, result = ctx.schedule, ops[-1]
    stage = s[result]
    at, row, data = _block_loops(stage, plan)
    if is_reduction(result):
        reduce_in_block(s, stage, kept.fused_reduction(stage, result),
                        _row_of(plan, result), plan.shape, at)
        if row is not None:
            stage.bind(row, plan.shape.row_tag)
    else:
        _elements_of_row(stage, data, row, plan.shape)
    for op in ops[:-1]:
        inner = s[op]
        inner.set_scope("shared")
        inner.compute_at(stage, at.axis)
        position = _row_of(plan, op)
        if is_reduction(op):
            reduce_in_block(s, inner, kept.fused_reduction(inner, op), position,
                            plan.shape, at)
            bind_row(inner, list(op.axis), position, plan.shape)
        else:
            others = [a for a in op.axis if a not in plan.shared.axes_of(op)]
            own = op.axis[position] if position is not None and plan.shape.rows > 1 else None
            _elements_of_row(inner, others, own, plan.shape)


def _row_of(plan: GroupPlan, op: te.ComputeOp) -> int | None:
    """The position of a stage's axis whose indices are the rows of a block."""
    if not plan.shared.result:
        return None
    return op.axis.index(plan.shared.axes_of(op)[plan.row_axis])


def _block_loops(
    stage: te.Stage, plan: GroupPlan
) -> tuple[AttachPoint, te.IterVar | None, list[te.IterVar]]:
    """The loop over blocks of the result, the loop over rows of a block, the data loops."""
    outer, data = list[te.IterVar](), list[te.IterVar]()
    row: te.IterVar | None = None
    for position, axis in enumerate(list(stage.axis)):
        if position not in plan.shared.result:
            data.append(axis)
            continue
        around = axis
        if position in plan.shared.groups:
            around, member = stage.split(axis, factor=plan.shared.groups[position])
            data.append(member)
        if position == plan.shared.result[plan.row_axis] and plan.shape.rows > 1:
            around, row = stage.split(around, factor=plan.shape.rows)
        outer.append(around)
    stage.reorder(*outer, *([row] if row is not None else []), *data)
    block = stage.fuse(*outer) if len(outer) > 1 else outer[0]
    stage.bind(block, "blockIdx.x")
    return AttachPoint(stage, block), row, data


def _elements_of_row(
    stage: te.Stage, data: list[te.IterVar], row: te.IterVar | None, shape: BlockShape
) -> None:
    """The elements of each row by its lanes, in vectors."""
    if row is not None:
        stage.bind(row, shape.row_tag)
    if not data:
        return
    inside: list[te.IterVar] = []
    others = [a for a in stage.leaf_iter_vars if a not in data and a is not row]
    stage.reorder(*others, *([row] if row is not None else []), *data)
    if shape.vector > 1 and is_fixed(data[-1].extent) and is_multiple(data[-1].extent,
                                                                      shape.vector):
        data[-1], vector = stage.split(data[-1], factor=shape.vector)
        stage.vectorize(vector)
        inside = [vector]
    flat = stage.fuse(*data) if len(data) > 1 else data[0]
    step, lane = stage.split(flat, factor=shape.lanes)
    stage.reorder(lane, step, *inside)
    stage.bind(lane, shape.lane_tag)
