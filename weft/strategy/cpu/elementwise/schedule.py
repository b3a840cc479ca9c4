"""The schedule of injective groups: elementwise chains, broadcasts, transposes, slices.

All stages are inlined but the outputs and the stages that ``recompute`` materializes. Axes that all
loads traverse as one are fused, the innermost axis is vectorized at register width, and the outer
ones run in parallel if there is enough work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from weft import te
from weft.ir import DType, float32
from weft.strategy.analysis import (
    coalesce_axes,
    computes_below,
    inlined_body,
)
from weft.strategy.cpu.common.axis_split import split_innermost
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.elementwise.transpose import find_transposed_access, tile_transpose
from weft.strategy.cpu.machine_model import has_masks, parallel_threshold
from weft.strategy.extents import fewest_iterations, highest_size, is_fixed, is_multiple, size_of
from weft.strategy.implementation import compute_of
from weft.strategy.recompute import stages_to_materialize
from weft.target import CpuTarget
from weft.tir import Call, PrimExpr, post_order
from weft.tir.intrinsics import INTRINSICS
from weft.tir.transform.masked_tail import MASKED_TAIL

_VECTORS = 4
# More polynomials overlap with each other already, and the code would grow.
_MAX_POLYNOMIALS = 4
# From this number of iterations on, one masked iteration at the end may be partly unused.
_MIN_MASKED_ITERATIONS = 16
# With fewer registers, one vector and the constants of a polynomial occupy all of them.
_MIN_REGISTERS = 32


def polynomials(body: Sequence[PrimExpr]) -> int:
    """The number of distinct calls in the body that lower to polynomials."""
    calls = {e for root in body for e in post_order(root)
             if isinstance(e, Call) and INTRINSICS.get(e.name).is_decomposed}
    return len(calls)


def vectors_per_iteration(
    count: int, extent: PrimExpr, dtype: DType, target: CpuTarget
) -> int:
    """Vectors of ``dtype`` for a body of ``count`` polynomials over ``extent`` elements.

    The count divides the extent, or the loop is long and its last iteration is masked; otherwise
    the tail would need copies of the body for narrower vectors. Narrow dtypes are computed as
    float32, in more vectors than their elements occupy in memory.
    """
    if not 0 < count <= _MAX_POLYNOMIALS or target.vector_registers < _MIN_REGISTERS:
        return 1
    lanes = target.lanes(dtype)
    vectors = _VECTORS * min(target.lanes(float32), lanes) // lanes
    fewest = _MIN_MASKED_ITERATIONS if has_masks(target) else math.inf
    size = size_of(extent)
    while (vectors > 1 and not is_multiple(extent, vectors * lanes)
           and size < fewest * vectors * lanes):
        vectors //= 2
    return max(vectors, 1)


CHUNK = 4096  # elements of a row that one thread computes at least
MIN_PARALLEL_EXTENT = 8  # tasks; fewer cannot keep common thread counts busy


def schedule_injective(ctx: CpuContext) -> None:
    """Schedule a group without reductions."""
    shared = [op.output(0) for op in stages_to_materialize(ctx.outputs)]
    kept = {id(t.op) for t in (*ctx.outputs, *shared)}
    for op in computes_below(ctx.outputs):
        if id(op) not in kept:
            ctx.schedule[op.output(0)].compute_inline()
    for tensor in (*shared, *ctx.outputs):
        if not isinstance(tensor.op, te.ComputeOp):
            continue  # an extern body has hand-written loops
        body = inlined_body(compute_of(tensor), lambda op: id(op) not in kept)
        schedule_loops(ctx.schedule[tensor], tensor, body, ctx.target,
                       int(ctx.knobs.get("vectors", 0)))


def schedule_loops(
    stage: te.Stage, tensor: te.Tensor, body: tuple[PrimExpr, ...], target: CpuTarget,
    vectors: int = 0,
) -> None:
    """Fuse, vectorize and parallelize the data axes of one stage without reductions.

    ``body`` is the stage's body with inlined producers substituted. An iteration computes
    ``vectors`` vectors; 0: as many as suit its polynomials.
    """
    axes, body = split_innermost(stage, body)
    axes = _without_unit_rows(stage, axes)
    groups = coalesce_axes(axes, body)
    loops = [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]
    if not loops:
        return
    lanes = target.lanes(tensor.dtype)
    transposed = find_transposed_access(groups, body, lanes)
    if transposed is not None:
        shared = tile_transpose(stage, loops, transposed, target)
        # Threads share rows of tiles: the indices of single tiles would cost divisions.
        if len(shared) > 1 and not all(is_fixed(loop.extent) for loop in shared[-2:]):
            shared = shared[:-1]
    else:
        *outer, inner = loops
        lanes *= vectors or vectors_per_iteration(polynomials(body), inner.extent, tensor.dtype,
                                                  target)
        around = chunked(stage, inner, outer, lanes, masks=has_masks(target))
        # Threads share symbolic rows, not the vectors of a row, which would cost divisions.
        is_row = around and outer and not all(is_fixed(loop.extent) for loop in loops)
        shared = [*outer, *around[:-1]] if is_row and size_of(inner.extent) <= CHUNK else [
            *outer, *around]
    if pays_in_parallel([compute_of(tensor)] * max(1, len(body)), target, reduced=False):
        parallelize(stage, shared)


def _without_unit_rows(stage: te.Stage, axes: list[te.IterVar]) -> list[te.IterVar]:
    """``axes`` without trailing axes of extent 1, whose loops move outermost.

    ``(128, 16, 1)`` must vectorize as ``(128, 16)`` does, not over rows of one element.
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
    """Vectorize ``axis``; returns the loops around the vector that the split creates.

    With ``masks`` the tail of a row is one masked vector instead of several narrower ones.
    """
    extent = size_of(axis.extent)
    if extent == 1 and is_fixed(axis.extent):
        return [axis]
    # A short row of a power of two is a legal vector itself; others need a mask or several vectors.
    if not is_fixed(axis.extent) or extent > lanes or (masks and extent.bit_count() > 1):
        outer, vector = stage.split(axis, factor=lanes)
        around = [outer]
    else:
        around, vector = [], axis
    stage.vectorize(vector)
    if masks:
        stage.pragma(vector, MASKED_TAIL, lanes)
    return around


def chunked(
    stage: te.Stage, axis: te.IterVar, rows: list[te.IterVar], lanes: int, *, masks: bool
) -> list[te.IterVar]:
    """``vectorize_innermost``; rows of symbolic length are cut into chunks that threads may share.

    The input may be a single long row, even if its usual length is short.
    """
    has_tasks = math.prod(fewest_iterations(row.extent) for row in rows) >= MIN_PARALLEL_EXTENT
    if is_fixed(axis.extent) or not rows or has_tasks:
        return vectorize_innermost(stage, axis, lanes, masks=masks)
    chunk, inside = stage.split(axis, factor=CHUNK // lanes * lanes)
    return [chunk, *vectorize_innermost(stage, inside, lanes, masks=masks)]


def pays_in_parallel(
    ops: Iterable[te.ComputeOp], target: CpuTarget, *, reduced: bool = True
) -> bool:
    """Whether the computes together may have the work that a fork and join pays for.

    Symbolic extents count as the largest size of their range: threads matter where there is much
    work. Reduction axes count unless ``reduced`` is false.
    """
    total = 0.0
    for op in ops:
        axes = (*op.axis, *op.reduce_axis) if reduced else op.axis
        highest = [highest_size(axis.extent) for axis in axes]
        total += math.prod(math.inf if size is None else max(size, 1) for size in highest)
    return total >= parallel_threshold(target)


def parallelize(stage: te.Stage, loops: list[te.IterVar]) -> list[te.IterVar]:
    """Fuse outermost loops until there are enough tasks for threads, and run them in parallel.

    Returns the new loops, outermost first.
    """
    count, chosen = 1, 0
    # No more loops than needed: the indices of a fused loop come from a division.
    while chosen < len(loops) and count < MIN_PARALLEL_EXTENT:
        count *= fewest_iterations(loops[chosen].extent)
        chosen += 1
    if all(size_of(loop.extent) <= 1 for loop in loops[:chosen]):
        return loops
    task = stage.fuse(*loops[:chosen]) if chosen > 1 else loops[0]
    stage.parallel(task)
    return [task, *loops[chosen:]]
