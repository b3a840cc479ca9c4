"""The injective family: elementwise chains, broadcasts, transposes, concatenations, slices.

Everything is inlined but the outputs and what would be computed many times. Axes that all reads
walk alike are fused, the innermost is vectorised at register width, and the outer ones run in
parallel where the work is worth it.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import (
    coalesce_axes,
    computes_below,
    elements,
    inlined_body,
    size_of,
)
from weft.strategy.cpu.common.axis_split import split_innermost
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.recompute import repeated_stages
from weft.strategy.cpu.elementwise.schedule import polynomials, vectors_at_a_time
from weft.strategy.cpu.elementwise.transpose import find_crossing, tile_crossing
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD, has_masks
from weft.strategy.implementation import compute_of
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr
from weft.tir.transform.masked_tail import MASKED_TAIL

MIN_PARALLEL_EXTENT = 8


def schedule_injective(ctx: CpuContext) -> None:
    """Schedule a group without reductions."""
    repeated = [op.output(0) for op in repeated_stages(ctx.outputs)]
    kept = {id(t.op) for t in (*ctx.outputs, *repeated)}
    for op in computes_below(ctx.outputs):
        if id(op) not in kept:
            ctx.schedule[op.output(0)].compute_inline()
    for tensor in (*repeated, *ctx.outputs):
        if not isinstance(tensor.op, te.ComputeOp):
            continue  # an extern body brings its own loops
        body = inlined_body(compute_of(tensor), lambda op: id(op) not in kept)
        schedule_loops(ctx.schedule[tensor], tensor, body, ctx.target)


def schedule_loops(
    stage: te.Stage, tensor: te.Tensor, body: tuple[PrimExpr, ...], target: CpuTarget
) -> None:
    """Fuse, vectorise and parallelise the data axes of one stage without reductions."""
    axes, body = split_innermost(stage, body)
    axes = _without_unit_rows(stage, axes)
    groups = coalesce_axes(axes, body)
    loops = [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]
    if not loops:
        return
    lanes = target.lanes(tensor.dtype)
    crossing = find_crossing(groups, body, lanes)
    if crossing is not None:
        outer = tile_crossing(stage, loops, crossing, lanes)
    else:
        *outer, inner = loops
        count = polynomials(body)
        lanes *= vectors_at_a_time(count, size_of(inner.extent), tensor.dtype, target)
        outer += vectorize_innermost(stage, inner, lanes, masks=has_masks(target))
    if elements(compute_of(tensor)) * max(1, len(body)) >= PARALLEL_THRESHOLD:
        parallelize(stage, outer)


def _without_unit_rows(stage: te.Stage, axes: list[te.IterVar]) -> list[te.IterVar]:
    """``axes`` up to the last with more than one element; loops over the others come first.

    Rows of one element are no vectors: ``(128, 16, 1)`` is written as ``(128, 16)`` is.
    """
    count = len(axes)
    while count > 1 and size_of(axes[count - 1].extent) == 1:
        count -= 1
    if count == len(axes) or size_of(axes[count - 1].extent) == 1:
        return axes
    stage.reorder(*axes[count:], *axes[:count])
    return axes[:count]


def vectorize_innermost(
    stage: te.Stage, axis: te.IterVar, lanes: int, *, masks: bool = False
) -> list[te.IterVar]:
    """Vectorise ``axis``; returns the loops around the vector that come of it.

    With ``masks`` what is left over of a row is one vector that is not full, and lanes choose
    where a choice changes within a vector.
    """
    extent = size_of(axis.extent)
    if extent == 1:
        return [axis]
    if extent > lanes or (masks and extent.bit_count() > 1):
        outer, vector = stage.split(axis, factor=lanes)
        around = [outer]
    else:
        around, vector = [], axis
    stage.vectorize(vector)
    if masks:
        stage.pragma(vector, MASKED_TAIL, lanes)
    return around


def parallelize(stage: te.Stage, loops: list[te.IterVar]) -> list[te.IterVar]:
    """Run the outermost loops in parallel, as many as give each thread several tasks.

    Returns the loops as they are then.
    """
    count, chosen = 1, 0
    while chosen < len(loops) and count < MIN_PARALLEL_EXTENT:
        count *= size_of(loops[chosen].extent)
        chosen += 1
    if count <= 1:
        return loops
    task = stage.fuse(*loops[:chosen]) if chosen > 1 else loops[0]
    stage.parallel(task)
    return [task, *loops[chosen:]]
