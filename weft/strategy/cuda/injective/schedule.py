"""The schedule of injective groups: elementwise chains, broadcasts, slices, gathers.

All stages are inlined but the outputs and those that ``recompute`` materializes. Axes that all
loads traverse as one are fused, the innermost one gives each thread a vector of up to 128 bits, and
the rest is one flat grid.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import coalesce_axes, computes_below, inlined_body
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.common.flat_grid import bind_flat, iterations, vector_lanes
from weft.strategy.cuda.injective.transpose import find_transposed, tile_transpose
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.implementation import compute_of
from weft.strategy.recompute import stages_to_materialize
from weft.tir.expr import PrimExpr

# Operations that the GPU does while another launch would start and move its result.
MIN_SAVED = 100_000_000


def schedule_injective(ctx: CudaContext) -> None:
    """Schedule a group without reductions."""
    shared = [op.output(0) for op in stages_to_materialize(
        ctx.outputs, min_saved=MIN_SAVED)]
    kept = {id(t.op) for t in (*ctx.outputs, *shared)}
    for op in computes_below(ctx.outputs):
        if id(op) not in kept:
            ctx.schedule[op.output(0)].compute_inline()
    for tensor in (*shared, *ctx.outputs):
        if isinstance(tensor.op, te.ComputeOp):  # an extern body has hand-written loops
            body = inlined_body(compute_of(tensor), lambda op: id(op) not in kept)
            schedule_elements(ctx.schedule, tensor, body, machine_model(ctx.target))


def schedule_elements(
    s: te.Schedule, tensor: te.Tensor, body: tuple[PrimExpr, ...], model: GpuModel
) -> None:
    """One thread per vector of elements of a stage without reductions, or tiles of a transpose.

    ``body`` is the stage's body with inlined producers substituted.
    """
    stage = s[tensor]
    groups = coalesce_axes(stage.axis, body)
    transposed = find_transposed(groups, body)
    if transposed is not None:
        tile_transpose(s, stage, groups, body, transposed)
        return
    loops = [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]
    if not loops:
        return
    *outer, inner = loops
    lanes = vector_lanes(inner, tensor.dtype.itemsize, body, iterations(outer), model)
    inside: list[te.IterVar] = []
    if lanes > 1:
        inner, vector = stage.split(inner, factor=lanes)
        stage.vectorize(vector)
        inside = [vector]
    bind_flat(stage, [*outer, inner], model, inside=inside)
