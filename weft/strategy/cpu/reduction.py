"""The reduction family: softmax, normalisations, means, pools without a layout of their own.

Where all stages share their leading axes ("rows"), the whole group runs row by row, so that
intermediate results stay in the nearest cache. Otherwise each reduction is a loop nest of its own.
A reduction along the contiguous axis keeps a vector of partial results (``rfactor``) and adds its
lanes up at the end; one along an outer axis is vectorised over the contiguous data axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from weft import te
from weft.strategy.access import step_along
from weft.strategy.analysis import (
    coalesce_axes,
    computes_below,
    consumers_of,
    elements,
    inlined_body,
    is_reduction,
    size_of,
    work_of,
)
from weft.strategy.cpu.contraction import one_tensor
from weft.strategy.cpu.injective import (
    MIN_PARALLEL_EXTENT,
    parallelize,
    schedule_loops,
    vectorize_innermost,
)
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD
from weft.strategy.implementation import ScheduleContext, compute_of
from weft.te.walk import loads_of
from weft.tir.expr import ProducerLoad, Reduce
from weft.tir.visitor import post_order

Attach: TypeAlias = "tuple[te.Stage, te.IterVar]"

# A reduction this long gets several vectors of partial results, to hide the latency of adding.
LONG_REDUCTION = 128
PARTIAL_VECTORS = 4
# Parts of a reduction to little, for threads to share: enough to share them evenly.
PARTS = 16


def schedule_reductions(ctx: ScheduleContext) -> None:
    """Schedule a group that holds at least one reduction."""
    ops = computes_below(ctx.outputs)
    kept = _stages_to_keep(ops, ctx)
    kept_ids = {id(op) for op in kept}
    for op in ops:
        if id(op) not in kept_ids:
            ctx.schedule[op.output(0)].compute_inline()
    rows = _shared_rows(kept, kept_ids) if len(ctx.outputs) == 1 else 0
    rows = _without_vectors(kept, kept_ids, rows)
    if rows and len(kept) > 1:
        _schedule_by_rows(ctx, kept, kept_ids, rows)
    else:
        for op in kept:
            _schedule_alone(ctx, op, kept_ids)


def _stages_to_keep(ops: list[te.ComputeOp], ctx: ScheduleContext) -> list[te.ComputeOp]:
    """Outputs, reductions, and what several of the kept stages would otherwise recompute."""
    outputs = {id(t.op) for t in ctx.outputs}
    readers = consumers_of(ops)
    return [
        op
        for op in ops
        if id(op) in outputs
        or is_reduction(op)
        or (len(readers[id(op)]) > 1 and _is_costly(op))
    ]


def _is_costly(op: te.ComputeOp) -> bool:
    """Whether computing an element again costs more than reading it: a transcendental does."""
    return any(type(e).__name__ == "Call" for root in op.body for e in post_order(root))


def _shared_rows(kept: list[te.ComputeOp], kept_ids: set[int]) -> int:
    """How many leading axes all kept stages share, each reading the others at its own."""
    rows = min(len(op.axis) for op in kept)
    output = kept[-1]
    for op in kept:
        while rows and any(
            a.extent is not b.extent
            for a, b in zip(op.axis[:rows], output.axis[:rows], strict=True)
        ):
            rows -= 1
        for load in loads_of(inlined_body(op, lambda p: id(p) not in kept_ids)):
            if id(load.producer.op) in kept_ids:
                rows = min(rows, _leading_identity(load, op))
    return rows


def _without_vectors(kept: list[te.ComputeOp], kept_ids: set[int], rows: int) -> int:
    """``rows`` less the axes along which memory is contiguous and nothing is reduced.

    Such an axis is the vectors'. A sole reduction down columns needs no rows at all: its strips
    of columns stay in registers, and what follows reads its small result.
    """
    reductions = [op for op in kept if is_reduction(op)]
    for op in reductions:
        contiguous = _contiguous_axis(op, kept_ids)
        if contiguous in op.axis[:rows]:
            rows = 0 if len(reductions) == 1 else op.axis.index(contiguous)
    return rows


def _leading_identity(load: ProducerLoad, op: te.ComputeOp) -> int:
    count = 0
    for index, axis in zip(load.indices, op.axis, strict=False):
        if index is not axis.var:
            break
        count += 1
    return count


def _schedule_by_rows(
    ctx: ScheduleContext, kept: list[te.ComputeOp], kept_ids: set[int], rows: int
) -> None:
    s = ctx.schedule
    output = kept[-1]
    out_stage = s[output.output(0)]
    row_axes = list(output.axis[:rows])
    inner = list(output.axis[rows:])
    row = out_stage.fuse(*row_axes) if rows > 1 else row_axes[0]
    if is_reduction(output):
        _schedule_reduction(ctx, output, inner, (out_stage, row), kept_ids)
    elif inner:
        vectorize_innermost(out_stage, inner[-1], ctx.target.lanes(output.output(0).dtype))
    for op in kept[:-1]:
        stage = s[op.output(0)]
        stage.compute_at(out_stage, row)
        data = list(op.axis[rows:])
        if is_reduction(op):
            _schedule_reduction(ctx, op, data, (out_stage, row), kept_ids)
        elif data:
            vectorize_innermost(stage, data[-1], ctx.target.lanes(op.output(0).dtype))
    if sum(map(work_of, kept)) >= PARALLEL_THRESHOLD and size_of(row.extent) > 1:
        out_stage.parallel(row)


def _schedule_alone(ctx: ScheduleContext, op: te.ComputeOp, kept_ids: set[int]) -> None:
    if is_reduction(op):
        partial = _split_among_threads(ctx, op)
        if partial is not None:
            _schedule_reduction(ctx, partial, list(partial.axis), None, kept_ids)
            return
        _schedule_reduction(ctx, op, list(op.axis), None, kept_ids)
        return
    body = inlined_body(op, lambda p: id(p) not in kept_ids)
    schedule_loops(ctx.schedule[op.output(0)], op.output(0), body, ctx.target)


def _split_among_threads(ctx: ScheduleContext, op: te.ComputeOp) -> te.ComputeOp | None:
    """A reduction of much to little as a fixed number of partial ones, which run in parallel.

    The number does not depend on the threads there are, so neither does the result's last bit.
    """
    tensor = op.output(0)
    if elements(op) >= MIN_PARALLEL_EXTENT or work_of(op) < PARTS * PARALLEL_THRESHOLD:
        return None
    stage = ctx.schedule[tensor]
    outermost = _fused_reduction(stage, op, lambda _: True)[0]
    if size_of(outermost.extent) < PARTS:
        return None
    part, _ = stage.split(outermost, nparts=PARTS)
    partial = compute_of(one_tensor(ctx.schedule.rfactor(tensor, part, 0)))
    _in_a_tree(stage, ctx.target.lanes(tensor.dtype))
    return partial


def _schedule_reduction(
    ctx: ScheduleContext,
    op: te.ComputeOp,
    data: list[te.IterVar],
    attach: Attach | None,
    kept_ids: set[int],
) -> None:
    """Vectorise one reduction over its axes ``data``.

    ``attach`` is the loop inside which the stage is computed; without one it runs in parallel.
    """
    stage = ctx.schedule[op.output(0)]
    lanes = ctx.target.lanes(op.output(0).dtype)
    contiguous = _contiguous_axis(op, kept_ids)
    loops = data
    if attach is None and contiguous in data and len(op.body) == 1:
        _schedule_columns(ctx, op, contiguous)
        return
    if contiguous in data:
        loops = _vectorize_data(stage, op, data, contiguous, lanes)
    if attach is None and work_of(op) >= PARALLEL_THRESHOLD:
        loops = parallelize(stage, loops)
    if contiguous not in op.reduce_axis:
        return
    along = _fused_reduction(stage, op, lambda p: id(p) not in kept_ids)[-1]
    if size_of(along.extent) >= 2 * lanes:
        inside = attach or ((stage, loops[-1]) if loops else None)
        _partial_vectors(ctx.schedule, op, along, lanes, inside)


def _schedule_columns(ctx: ScheduleContext, op: te.ComputeOp, contiguous: te.IterVar) -> None:
    """A strip of neighbouring columns in registers, down all that is reduced.

    Each step reads a run of neighbouring elements, and nothing of the result is in memory before
    it is final.
    """
    tensor, s = op.output(0), ctx.schedule
    lanes = ctx.target.lanes(tensor.dtype)
    position = op.axis.index(contiguous)
    strip = min(ctx.target.vector_registers // 2, -(-size_of(contiguous.extent) // lanes))
    acc = one_tensor(s.cache_write(tensor, "local"))
    stage = s[tensor]
    columns = stage.axis[position]
    others = [axis for axis in stage.axis if axis is not columns]
    block, inside = stage.split(columns, factor=strip * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    stage.reorder(*others, block, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)
    loops = [*others, block]
    if work_of(op) >= PARALLEL_THRESHOLD:
        loops = parallelize(stage, loops)
    s[acc].compute_at(stage, loops[-1])
    _accumulate_columns(s[acc], position, lanes)


def _accumulate_columns(stage: te.Stage, position: int, lanes: int) -> None:
    columns = stage.axis[position]
    others = [axis for axis in stage.axis if axis is not columns]
    reductions = list(stage.reduce_axis)
    vector, lane = stage.split(columns, factor=lanes)
    stage.reorder(*others, *reductions, vector, lane)
    stage.unroll(vector)
    stage.vectorize(lane)


def _fused_reduction(
    stage: te.Stage, op: te.ComputeOp, is_inlined: Callable[[te.ComputeOp], bool]
) -> list[te.IterVar]:
    """The reduction axes, those fused that all reads walk as one."""
    first = inlined_body(op, is_inlined)[0]
    sources = first.source if isinstance(first, Reduce) else (first,)
    groups = coalesce_axes(op.reduce_axis, tuple(sources))
    return [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]


def _vectorize_data(
    stage: te.Stage,
    op: te.ComputeOp,
    data: list[te.IterVar],
    contiguous: te.IterVar,
    lanes: int,
) -> list[te.IterVar]:
    """The contiguous data axis innermost as vectors, reductions outside; the loops around."""
    others = [axis for axis in data if axis is not contiguous]
    around = vectorize_innermost(stage, contiguous, lanes)
    vectors = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
    if vectors:
        stage.reorder(*others, *around, *op.reduce_axis, *vectors)
    return [*others, *around]


def _contiguous_axis(op: te.ComputeOp, kept_ids: set[int]) -> te.IterVar | None:
    """The axis along which the largest operand lies contiguously in memory."""
    body = inlined_body(op, lambda p: id(p) not in kept_ids)
    sources = body[0].source if isinstance(body[0], Reduce) else body
    loads = [load for load in loads_of(tuple(sources)) if load.indices]
    loads.sort(key=lambda load: -_tensor_elements(load.producer))
    for load in loads:
        for axis in (*op.reduce_axis, *op.axis):
            if step_along(load, axis) == 1 and size_of(axis.extent) > 1:
                return axis
    return None


def _tensor_elements(tensor: te.Tensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size_of(size)
    return count


def _partial_vectors(
    s: te.Schedule, op: te.ComputeOp, axis: te.IterVar, lanes: int, attach: Attach | None
) -> None:
    """Keep a vector of partial results, or a few, in registers; combine them in a tree."""
    tensor = op.output(0)
    long = size_of(axis.extent) >= LONG_REDUCTION and len(op.body) == 1
    _, chunk = s[tensor].split(axis, factor=lanes * PARTIAL_VECTORS if long else lanes)
    parts = s.rfactor(tensor, chunk, -1)
    stage = s[one_tensor(parts)]
    around, vector = stage.split(stage.axis[-1], factor=lanes)
    stage.reorder(*stage.reduce_axis, around, vector)
    stage.vectorize(vector)
    stage.unroll(around)
    stage.set_scope("local")
    if attach is not None:
        stage.compute_at(*attach)
    _in_a_tree(s[tensor], lanes)


def _in_a_tree(stage: te.Stage, lanes: int) -> None:
    """Combine the partial results that ``stage`` reduces vector by vector, then by halves."""
    stage.pragma(stage.reduce_axis[0], "combine_lanes", lanes)
