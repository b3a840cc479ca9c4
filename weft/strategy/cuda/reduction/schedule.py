"""The schedule of groups with reductions: softmax, normalisations, means, pooling.

If the stages share axes, one launch computes whole rows (``groups``). Otherwise each stage that is
materialized is a launch of its own.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below, is_reduction
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.common.flat_grid import bind_flat
from weft.strategy.cuda.injective.schedule import schedule_elements
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.reduction.decide import AlonePlan, ReductionAlgorithm, decide_alone
from weft.strategy.cuda.reduction.decide_group import decide_reduction
from weft.strategy.cuda.reduction.groups import (
    GroupPlan,
    reduce_in_block,
    schedule_group,
    tensors_of,
)
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.implementation import compute_of
from weft.strategy.kept_stages import KeptStages


def schedule_reductions(ctx: CudaContext) -> None:
    """Schedule a group that holds at least one reduction."""
    model, plan = machine_model(ctx.target), decide_reduction(ctx.outputs, ctx.target).plan
    kept = plan.stages
    for op in computes_below(ctx.outputs):
        if kept.is_inlined(op):
            ctx.schedule[op.output(0)].compute_inline()
    if plan.group is not None:
        schedule_group(ctx, kept, plan.group, kept.ops)
        return
    for op in kept.ops:
        if is_reduction(op):
            schedule_alone(ctx, kept, op, model)
        else:
            schedule_elements(ctx.schedule, op.output(0), kept.body(op), model)


def schedule_alone(ctx: CudaContext, kept: KeptStages, op: te.ComputeOp, model: GpuModel) -> None:
    """One reduction in a launch of its own, or in two if few results have long rows."""
    decision = decide_alone(kept, op, model)
    if decision.algorithm == ReductionAlgorithm.TWO_STAGE:
        partial, op = _partial_results(ctx, kept, op, decision.plan)
        kept = KeptStages((*kept.ops, partial, op))
        row_axis = decision.plan.row_axis + 1 if partial.axis[1:] else 0
        _by_blocks(ctx, kept, partial, AlonePlan(decision.plan.shape, row_axis))
        decision = decide_alone(kept, op, model)
    if decision.algorithm in (ReductionAlgorithm.ROWS, ReductionAlgorithm.COLUMNS):
        _by_blocks(ctx, kept, op, decision.plan)
    else:
        _one_thread_each(ctx, op, model)


def _by_blocks(ctx: CudaContext, kept: KeptStages, op: te.ComputeOp, plan: AlonePlan) -> None:
    if not op.axis:
        stage = ctx.schedule[op]
        if plan.shape.lanes == 1:
            return  # one thread
        reduce_in_block(ctx.schedule, stage, kept.fused_reduction(stage, op), plan.shape)
        return
    shared = SharedAxes.alone(op)
    schedule_group(ctx, kept, GroupPlan(shared, plan.row_axis, plan.shape), (op,))


def _one_thread_each(ctx: CudaContext, op: te.ComputeOp, model: GpuModel) -> None:
    """Each thread computes one result in registers."""
    s, stage = ctx.schedule, ctx.schedule[op]
    if not stage.axis:
        return
    own = tensors_of(s.cache_write(stage.tensors[0], "local"))
    bind_flat(stage, list(stage.axis), model)
    s[own].compute_at(stage, stage.leaf_iter_vars[-1])


def _partial_results(
    ctx: CudaContext, kept: KeptStages, op: te.ComputeOp, plan: AlonePlan
) -> tuple[te.ComputeOp, te.ComputeOp]:
    """The reduction of ``plan.chunks`` chunks of each row, and that of their results."""
    s, stage = ctx.schedule, ctx.schedule[op]
    loops = kept.fused_reduction(stage, op)
    if plan.shape.vector > 1:  # a chunk is a number of whole vectors
        loops[-1], _ = stage.split(loops[-1], factor=plan.shape.vector)
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    chunk, _ = stage.split(flat, nparts=plan.chunks)
    partial = compute_of(tensors_of(s.rfactor(stage.tensors[0], chunk, 0)))
    return partial, stage.require_compute("two-stage reduction")
