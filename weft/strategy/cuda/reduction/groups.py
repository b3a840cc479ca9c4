"""Groups whose stages share axes: one thread block computes whole rows through all stages.

A row of a softmax, of a normalisation or of its gradient is read once from memory; maxima, sums and
rows that several stages read stay in registers and shared memory.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.reduction.partials import BlockShape, reduce_in_block, tensors_of
from weft.strategy.cuda.reduction.row_copies import copy_rows, rows_to_copy
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.extents import is_fixed, is_multiple
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass


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
    own = _accumulators(s, stage, plan, result)
    block, row, data = _block_loops(stage, plan)
    if is_reduction(result) and own is None:
        _bind_row(stage, row, plan.shape)
        reduce_in_block(s, stage, kept.fused_reduction(stage, result), plan.shape)
    else:
        _elements_of_row(stage, data, row, plan.shape, own, block)
    for copy in rows_to_copy(kept, plan.shared, plan.row_axis, plan.shape) if ops[:-1] else ():
        copied = copy_rows(s, copy)
        copied.compute_at(stage, block)
        axes = list(copied.axis)
        own_row = axes.pop(copy.row) if plan.shape.rows > 1 else None
        _elements_of_row(copied, axes, own_row, plan.shape, None, copied.axis[0])
    for op in ops[:-1]:
        inner = s[op]
        own = _accumulators(s, inner, plan, op)
        inner.set_scope("shared")
        inner.compute_at(stage, block)
        _inner_stage(s, kept, plan, op, own)


def _inner_stage(s: te.Schedule, kept: KeptStages, plan: GroupPlan, op: te.ComputeOp,
                 own: te.Stage | None) -> None:
    """A stage between others, in the shared memory of the block."""
    stage, shared = s[op], plan.shared.axes_of(op)
    # The copy of accumulators has axes of its own, in the same order.
    axes = dict(zip(op.axis, stage.axis, strict=True))
    row = axes[shared[plan.row_axis]] if shared and plan.shape.rows > 1 else None
    if is_reduction(op) and own is None:
        _bind_row(stage, row, plan.shape)
        reduce_in_block(s, stage, kept.fused_reduction(stage, op), plan.shape)
    else:
        data = [axes[axis] for axis in plan.shared.inside(op)]
        _elements_of_row(stage, data, row, plan.shape, own, stage.axis[0])


def _accumulators(s: te.Schedule, stage: te.Stage, plan: GroupPlan,
                  op: te.ComputeOp) -> te.Stage | None:
    """Registers for what one thread reduces alone; ``None`` if the lanes of a row share a result.

    A row has several results of a reduction, or only one lane.
    """
    is_shared = plan.shared.elements_of_row(op) == 1 and plan.shape.lanes > 1
    if not is_reduction(op) or is_shared:
        return None
    return s[tensors_of(s.cache_write(stage.tensors[0], "local"))]


def _block_loops(
    stage: te.Stage, plan: GroupPlan
) -> tuple[te.IterVar, te.IterVar | None, list[te.IterVar]]:
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
    return block, row, data


def _bind_row(stage: te.Stage, row: te.IterVar | None, shape: BlockShape) -> None:
    """Give the rows of the block to threads; other shared axes have one index inside a block."""
    if row is not None:
        stage.bind(row, shape.row_tag)


def _elements_of_row(
    stage: te.Stage, data: list[te.IterVar], row: te.IterVar | None, shape: BlockShape,
    own: te.Stage | None, outermost: te.IterVar,
) -> None:
    """The elements of each row by its lanes, in vectors; ``own`` are accumulators of a lane.

    Without rows and lanes, ``outermost`` is the loop of the one thread that works.
    """
    _bind_row(stage, row, shape)
    inside: list[te.IterVar] = []
    thread = outermost if row is None else row
    if data:
        others = [a for a in stage.leaf_iter_vars if a not in data and a is not row]
        stage.reorder(*others, *([row] if row is not None else []), *data)
        last = data[-1].extent
        if own is None and shape.vector > 1 and is_fixed(last) and is_multiple(last, shape.vector):
            data[-1], vector = stage.split(data[-1], factor=shape.vector)
            stage.vectorize(vector)
            inside = [vector]
        flat = stage.fuse(*data) if len(data) > 1 else data[0]
        step, lane = stage.split(flat, factor=shape.lanes)
        stage.reorder(lane, step, *inside)
        stage.bind(lane, shape.lane_tag)
        thread = step
    if own is not None:
        own.compute_at(stage, thread)
