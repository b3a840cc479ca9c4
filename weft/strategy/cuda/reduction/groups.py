"""Groups whose stages share axes: one thread block computes whole rows through all stages.

A row of a softmax, of a normalisation or of its gradient is read once from memory; maxima, sums and
rows that several stages read stay in registers and shared memory, and an operand that several
stages read is copied to shared memory once.

Within a row each of ``lanes`` threads reduces every ``lanes``-th vector into registers, so that the
loads of a warp are adjacent. The lanes then combine their results by shuffles and shared memory
(``weft.tir.transform.gpu.cross_thread_reduce``) in a fixed order: results are the same in each run.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.analysis import is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.extents import is_fixed, is_multiple, size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass
from weft.te import input_tensors, loads_of
from weft.te.tensor import REDUCE, PlaceholderOp
from weft.tir import ProducerLoad


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The threads of a block: ``rows`` times ``lanes``; a lane loads ``vector`` elements at once.

    ``row_tag`` numbers the rows of the block, ``lane_tag`` the threads of a row.
    """

    rows: int
    lanes: int
    vector: int = 1
    row_tag: str = "threadIdx.y"
    lane_tag: str = "threadIdx.x"


ONE_THREAD = BlockShape(1, 1)


def tensors_of(made: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor:
    """The first of the tensors that ``rfactor`` or ``cache_write`` returns."""
    return made[0] if isinstance(made, tuple) else made


def reduce_in_block(
    s: te.Schedule, stage: te.Stage, loops: list[te.IterVar], shape: BlockShape
) -> None:
    """Share the reduction of ``stage`` among the lanes of its row.

    ``loops`` are its reduction loops, outermost first; vectors run along the last one.
    """
    if shape.vector == 1:
        lane = _lanes_of(stage, loops, shape)[1]
    else:
        lane = _vector_lanes(s, stage, loops, shape)
    stage.bind(lane, shape.lane_tag)


def _lanes_of(stage: te.Stage, loops: list[te.IterVar], shape: BlockShape
              ) -> tuple[te.IterVar, te.IterVar]:
    """The steps of a lane and the lanes, which are outermost."""
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    step, lane = stage.split(flat, factor=shape.lanes)
    stage.reorder(lane, step)
    return step, lane


def _vector_lanes(s: te.Schedule, stage: te.Stage, loops: list[te.IterVar],
                  shape: BlockShape) -> te.IterVar:
    """Vectors of partial results in the registers of each lane; returns the loop over lanes."""
    loops[-1], element = stage.split(loops[-1], factor=shape.vector)
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    _, lane = stage.split(flat, factor=shape.lanes)
    own = s[tensors_of(s.rfactor(stage.tensors[0], stage.fuse(lane, element), -1))]
    own.set_scope("local")
    lane, _ = stage.split(_reduce_loops(stage)[0], factor=shape.vector)
    own.compute_at(stage, lane)
    *others, last = own.axis
    own.reorder(*others, *_reduce_loops(own), last)
    own.vectorize(last)  # innermost: one load serves all elements of a vector
    return lane


def _reduce_loops(stage: te.Stage) -> list[te.IterVar]:
    return [axis for axis in stage.leaf_iter_vars if axis.kind == REDUCE]


# Shared memory of all copies of a block, for four blocks on an SM of sm_80; and of copies and rows
# of stages together, below the 48 KiB that every block has without opting in.
COPIES_BYTES = 24 * 1024
BLOCK_BYTES = 44 * 1024


@dataclass(frozen=True, slots=True)
class RowCopy:
    """An operand with one part for each row; ``row`` is its axis of a block's rows, if any."""

    tensor: te.Tensor
    row: int


def rows_to_copy(kept: KeptStages, shared: SharedAxes, row_axis: int, shape: BlockShape
                 ) -> list[RowCopy]:
    """The operands that at least two stages read at their own row, as far as they fit."""
    loads: dict[te.Tensor, list[tuple[te.ComputeOp, ProducerLoad]]] = {}
    for op in kept.ops:
        for load in loads_of(kept.body(op)):
            if isinstance(load.producer.op, PlaceholderOp):
                loads.setdefault(load.producer, []).append((op, load))
    kept_bytes = shape.rows * sum(
        shared.elements_of_row(op) * t.dtype.itemsize for op in kept.ops[:-1] for t in op.outputs)
    found, room = list[RowCopy](), min(COPIES_BYTES, BLOCK_BYTES - kept_bytes)
    for tensor, reads in loads.items():
        axes = {_row_axes(op, load, shared) for op, load in reads}
        readers = {id(op) for op, _ in reads}
        if len(readers) < 2 or len(axes) != 1 or not all(map(is_fixed, tensor.shape)):
            continue
        (own,) = axes
        if own is None:
            continue
        length = math.prod(size_of(n) for i, n in enumerate(tensor.shape) if i not in own)
        needed = length * shape.rows * tensor.dtype.itemsize
        if length >= shape.lanes * shape.vector and needed <= room:
            room -= needed
            found.append(RowCopy(tensor, own[row_axis]))
    return found


def _row_axes(op: te.ComputeOp, load: ProducerLoad, shared: SharedAxes) -> tuple[int, ...] | None:
    """For each shared axis the axis of the operand that it indexes; ``None`` without one."""
    positions = []
    for axis in shared.axes_of(op):
        at = [i for i, index in enumerate(load.indices) if index is axis.var]
        if len(at) != 1:
            return None
        positions.append(at[0])
    return tuple(positions)


def copy_rows(s: te.Schedule, copy: RowCopy) -> te.Stage:
    """The stage of the copy, which all readers of the operand read instead."""
    readers = [stage.op for stage in s.stages if copy.tensor in input_tensors(stage.op)]
    return s[s.cache_read(copy.tensor, "shared", readers)]


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
