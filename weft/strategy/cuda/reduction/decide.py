"""The decision for a reduction group: which threads reduce which elements.

It is taken on the tensor expressions of the fused group. ``plan_group`` decides for a group that
shares axes, ``decide_alone`` for one reduction in a launch of its own.
"""

from __future__ import annotations

import enum

from weft import te
from weft.strategy.access import stride_along
from weft.strategy.analysis import elements, work_of
from weft.strategy.cuda.common.flat_grid import BLOCK
from weft.strategy.cuda.machine_model import SECTOR, VECTOR_BYTES, WARP, GpuModel
from weft.strategy.cuda.reduction.groups import ONE_THREAD, BlockShape, GroupPlan
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.decision import Candidate, Decision, Rejected, choose
from weft.strategy.extents import is_fixed, is_multiple, size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass

# Shared memory of a group's rows. Half of what every block has without opting in, so that at least
# four blocks run on each SM.
ROWS_BYTES = 24 * 1024
# Vectors of a row that a lane loads at least, so that several loads are in flight.
STEPS_PER_LANE = 2
# Steps of a thread in a partial reduction of a long row: enough to pay for the second launch.
STEPS_PER_CHUNK = 4


class ReductionAlgorithm(enum.StrEnum):
    """The threads that compute one result of a reduction."""

    THREAD = "thread"  # one thread for each result
    ROWS = "rows"  # the threads of a row share its elements, which are contiguous
    COLUMNS = "columns"  # adjacent threads own adjacent results; others share the elements
    TWO_STAGE = "two_stage"  # several blocks per result, whose partial results a second launch adds


@dataclass(frozen=True, slots=True)
class AlonePlan:
    """How one reduction runs; ``chunks`` is the number of blocks that share a result."""

    shape: BlockShape = ONE_THREAD
    row_axis: int = 0
    chunks: int = 1


def decide_alone(kept: KeptStages, op: te.ComputeOp, model: GpuModel) -> Decision[AlonePlan]:
    """The algorithm of one reduction in a launch of its own, by estimated seconds."""
    results, work = elements(op), work_of(op)
    length = max(1, work // max(1, results))
    if not op.axis:
        return _decide_scalar(kept, op, length, model)
    itemsize = op.output(0).dtype.itemsize
    moved = float(work * itemsize)
    contiguous = kept.contiguous_axis(op)
    along = contiguous in op.reduce_axis
    waste = _sector_waste(kept, op) if along else 1.0
    candidates = [Candidate(ReductionAlgorithm.THREAD,
                            _thread_seconds(moved, results, length, waste, itemsize, model),
                            AlonePlan())]
    rejected: list[Rejected] = []
    if contiguous in op.axis and size_of(contiguous.extent) >= WARP // 4:
        plan = _column_plan(op, contiguous, results, length, model)
        candidates.append(Candidate(ReductionAlgorithm.COLUMNS,
                                    _block_seconds(moved, results, length, plan, model), plan))
    else:
        rejected.append(Rejected(ReductionAlgorithm.COLUMNS,
                                 "no data axis along which the operand is contiguous"))
        plan = _row_plan(kept, op, length, model)
        # Lanes that share a short run, such as a row of a window, use a part of its sectors.
        run = max(1, kept.reduction_extents(op)[-1]) * itemsize
        moved *= max(1.0, SECTOR / run)
        candidates.append(Candidate(ReductionAlgorithm.ROWS,
                                    _block_seconds(moved, results, length, plan, model), plan))
    chunks = _chunks(results, length, plan, model)
    if chunks > 1:
        seconds = model.launch_seconds + _block_seconds(
            moved, results * chunks, -(-length // chunks), plan, model)
        candidates.append(Candidate(ReductionAlgorithm.TWO_STAGE, seconds,
                                    AlonePlan(plan.shape, plan.row_axis, chunks)))
    else:
        rejected.append(Rejected(ReductionAlgorithm.TWO_STAGE,
                                 "the results alone give every SM a block, or rows are short"))
    return choose(candidates, rejected)


def _decide_scalar(kept: KeptStages, op: te.ComputeOp, length: int,
                   model: GpuModel) -> Decision[AlonePlan]:
    """A reduction to one number: by one block, or by blocks that reduce chunks and a last one."""
    vector = _reduce_vector(kept, op) if length >= WARP * VECTOR_BYTES else 1
    lanes = min(model.max_threads, _power_below(length // vector))
    chunks = min(2 * model.sms, length // (lanes * vector * STEPS_PER_CHUNK))
    plan = AlonePlan(BlockShape(1, lanes, vector), 0, max(1, chunks))
    moved = float(length * op.output(0).dtype.itemsize)
    if chunks <= 1:
        seconds = _block_seconds(moved, 1, length, plan, model)
        return choose([Candidate(ReductionAlgorithm.ROWS, seconds, plan)])
    seconds = model.launch_seconds + _block_seconds(moved, plan.chunks,
                                                    -(-length // plan.chunks), plan, model)
    return choose([Candidate(ReductionAlgorithm.TWO_STAGE, seconds, plan)])


def _thread_seconds(moved: float, results: int, length: int, waste: float, itemsize: int,
                    model: GpuModel) -> float:
    """One thread per result, whose loads move ``waste`` times the bytes that they use."""
    latency = length * model.dram_latency / 8  # eight loads of an unrolled loop are in flight
    memory = model.memory_seconds(moved * waste, results, 8 * itemsize)
    return model.launch_seconds + max(memory, latency if results < model.resident_threads else 0)


def _sector_waste(kept: KeptStages, op: te.ComputeOp) -> float:
    """Bytes moved over bytes used if adjacent threads compute adjacent results.

    Half of what the strides say: the rest of a sector is often still in L1 for the next step.
    """
    found = kept.contiguous_load(op)
    if found is None or not op.axis:
        return 1.0
    most = SECTOR // found[0].producer.dtype.itemsize
    stride = stride_along(found[0], op.axis[-1])
    return max(1.0, min(most, most if stride is None else stride) / 2)


def _block_seconds(moved: float, results: int, length: int, plan: AlonePlan,
                   model: GpuModel) -> float:
    """Lanes share a row: its loads, then the exchanges of the levels of the tree."""
    threads = float(results * plan.shape.lanes)
    levels = max(1, plan.shape.lanes.bit_length() // 3)
    waves = max(1.0, threads / model.resident_threads)
    exchange = model.cycles_seconds(levels * model.exchange_cycles) * waves
    steps = -(-length // (plan.shape.lanes * plan.shape.vector))
    latency = steps * model.dram_latency / 4
    memory = model.memory_seconds(moved, threads, 32.0)
    return model.launch_seconds + max(memory, latency) + exchange


def _row_plan(kept: KeptStages, op: te.ComputeOp, length: int, model: GpuModel) -> AlonePlan:
    shape = row_shape(length, _reduce_vector(kept, op), op, model)
    axis = _largest(op.axis)
    rows = shape.rows if axis is not None else 1
    if axis is not None:
        rows = min(rows, _power_below(size_of(op.axis[axis].extent)))
    return AlonePlan(BlockShape(rows, shape.lanes, shape.vector), axis or 0)


def row_shape(length: int, vector: int, op: te.ComputeOp, model: GpuModel) -> BlockShape:
    """Threads for rows of ``length``: up to a block per row, several rows per block if short."""
    # Powers of two: warps combine their results by a butterfly.
    lanes = min(BLOCK, _power_below(-(-length // (vector * STEPS_PER_LANE))))
    # Long rows hide latency by more loads per thread; many rows by more blocks.
    if length // vector >= 16 * BLOCK and elements(op) < 2 * model.sms:
        lanes = model.max_threads
    return BlockShape(max(1, BLOCK // lanes), lanes, vector)


def _column_plan(op: te.ComputeOp, contiguous: te.IterVar, results: int, length: int,
                 model: GpuModel) -> AlonePlan:
    """A warp or more along the contiguous axis; lanes share the reduced axis to fill the GPU."""
    columns = min(WARP, _power_above(size_of(contiguous.extent)))
    lanes = 1
    while lanes < BLOCK // columns and results * lanes < model.resident_threads // 2 \
            and lanes * 2 <= length:
        lanes *= 2
    if lanes == 1:  # whole blocks of columns
        columns = min(BLOCK // 2, _power_above(size_of(contiguous.extent)))
    shape = BlockShape(columns, lanes, 1, row_tag="threadIdx.x", lane_tag="threadIdx.y")
    return AlonePlan(shape, op.axis.index(contiguous))


def _chunks(results: int, length: int, plan: AlonePlan, model: GpuModel) -> int:
    """Blocks that share one result, so that every SM has two."""
    blocks = max(1, results // plan.shape.rows)
    step = plan.shape.lanes * plan.shape.vector * STEPS_PER_CHUNK
    return max(1, min(2 * model.sms // blocks, length // max(1, step)))


def plan_group(kept: KeptStages, shared: SharedAxes, model: GpuModel) -> GroupPlan | None:
    """How a group runs by rows; ``None`` if its stages must run one after the other."""
    reductions = kept.reductions
    if not shared.result or not reductions:
        return None
    contiguous = kept.contiguous_axis(reductions[0])
    first = shared.axes_of(reductions[0])
    length = max(_row_length(op, shared) for op in kept.ops)
    if contiguous in first:
        row_axis = first.index(contiguous)
        plan = _column_plan(reductions[0], contiguous, elements(reductions[0]), length, model)
        shape = plan.shape
    else:
        vector = min(_reduce_vector(kept, op) for op in reductions)
        shape = row_shape(length, vector, reductions[0], model)
        row_axis = _largest(first) or 0
        rows = min(shape.rows, _power_below(size_of(first[row_axis].extent)))
        shape = BlockShape(rows, shape.lanes, shape.vector)
    rows = _rows_that_fit(kept, shared, shape)
    shape = BlockShape(rows, shape.lanes, shape.vector, shape.row_tag, shape.lane_tag)
    return GroupPlan(shared, row_axis, shape) if rows else None


def _row_length(op: te.ComputeOp, shared: SharedAxes) -> int:
    """Independent steps of one row of a stage: its elements, or those that its result reduces."""
    count = shared.elements_of_row(op)
    return count if count > 1 else max(1, work_of(op) // max(1, elements(op)))


def _rows_that_fit(kept: KeptStages, shared: SharedAxes, shape: BlockShape) -> int:
    """Rows of a block whose kept elements fit in shared memory; 0 if not even one does."""
    rows = shape.rows
    per_row = shape.lanes * 8
    for op in kept.ops[:-1]:
        if not all(is_fixed(axis.extent) for axis in shared.inside(op)):
            return 0  # the shared memory of a block has a fixed size
        itemsize = sum(t.dtype.itemsize for t in op.outputs)
        per_row += shared.elements_of_row(op) * itemsize
    while rows > 1 and rows * per_row > ROWS_BYTES:
        rows //= 2
    return rows if rows * per_row <= 2 * ROWS_BYTES else 0


def _reduce_vector(kept: KeptStages, op: te.ComputeOp) -> int:
    """Elements of one load along the reduced axis: 128 bits of the operand, if rows align."""
    found = kept.contiguous_load(op)
    if found is None or found[1] not in op.reduce_axis:
        return 1
    load, axis = found
    lanes = max(1, VECTOR_BYTES // load.producer.dtype.itemsize)
    # The last of the fused axes that all loads traverse as one.
    extent = kept.reduction_extents(op)[-1]
    if axis is not op.reduce_axis[-1] or not all(is_fixed(a.extent) for a in op.reduce_axis):
        return 1
    while lanes > 1 and (extent % lanes or not is_multiple(load.producer.shape[-1], lanes)):
        lanes //= 2
    return min(lanes, 8)


def _largest(axes: object) -> int | None:
    sizes = [size_of(a.extent) for a in axes]  # type: ignore[attr-defined]
    return max(range(len(sizes)), key=lambda i: sizes[i]) if sizes else None


def _power_above(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


def _power_below(n: int) -> int:
    """The largest power of two that is at most ``n``, and at least 1."""
    return 1 << max(0, max(1, n).bit_length() - 1)
