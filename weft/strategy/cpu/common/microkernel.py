"""The microkernel of GEMM, convolutions and pools: a tile of accumulators in registers.

A contraction is computed tile by tile into ``local`` memory (registers). The vector axis is
contiguous in the packed weights, the row axis supplies broadcast operands, and the whole reduction
runs inside the tile. The operators that are fused behind the contraction read the tile while it is
still in registers.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below
from weft.strategy.cpu.common.context import CpuContext
from weft.tir.expr import int_value
from weft.tir.transform.exact_tail import EXACT_TAIL


def accumulators(
    ctx: CpuContext, reduction: te.Tensor | None = None, *, scope: str = "local"
) -> te.Tensor:
    """Put the accumulators into ``scope``: the reduction, or a cache of it if it is the output.

    ``reduction`` is the anchor unless given. The computes between it and the output are inlined, so
    that only the loops of the output remain to be tiled; lookup tables are not.
    """
    s, output = ctx.schedule, ctx.output
    tensor = ctx.anchor if reduction is None else reduction
    if tensor is output:
        return one_tensor(s.cache_write(output, scope))
    below = {id(op) for op in computes_below((tensor,))}
    for op in computes_below(ctx.outputs):
        kept = id(op) in below or op is output.op or op.role is te.StageRole.LOOKUP_TABLE
        if not kept:
            s[op.output(0)].compute_inline()
    s[tensor].set_scope(scope)
    return tensor


def one_tensor(result: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor:
    """The new tensor that ``cache_write`` or ``rfactor`` returns for a compute with one output."""
    return result[0] if isinstance(result, tuple) else result


def tile_of_axis(
    stage: te.Stage, axis: te.IterVar, size: int
) -> tuple[list[te.IterVar], te.IterVar]:
    """The axis of a register tile as loops around the tile and a loop of constant extent in it.

    ``stage`` is computed at the loop of its tile, where a fixed axis has the extent of the tile. A
    symbolic one has so too, but only a split makes that extent a fact of the schedule.
    """
    if int_value(axis.extent) is not None:
        return [], axis
    outer, inner = stage.split(axis, factor=size)
    stage.pragma(inner, EXACT_TAIL, 1)
    return [outer], inner


def split_tiles(
    stage: te.Stage, axis: te.IterVar, size: int
) -> tuple[te.IterVar, te.IterVar]:
    """The axis of the output as tiles of ``size``; the last one of a symbolic axis is exact."""
    tiles, inner = stage.split(axis, factor=size)
    if int_value(axis.extent) is None:
        stage.pragma(inner, EXACT_TAIL, 1)
    return tiles, inner


def register_blocking(
    stage: te.Stage,
    reduce_order: list[te.IterVar],
    rows: list[te.IterVar],
    vectors: list[te.IterVar],
    lane_axis: te.IterVar,
    around: list[te.IterVar],
    unroll: int = 1,
) -> None:
    """Make ``stage`` a microkernel: loops ``around``, the reductions, the unrolled register tile.

    ``unroll`` steps of the innermost reduction are unrolled too.

    Vectors are inside rows: a broadcast operand serves all vectors of its row at once, then its
    register is free, while the few vector operands stay. In the other order the broadcasts of a
    whole tile are live together, and spill.
    """
    steps: list[te.IterVar] = []
    if unroll > 1:
        *outer, last = reduce_order
        last, step = stage.split(last, factor=unroll)
        reduce_order, steps = [*outer, last], [step]
    stage.reorder(*around, *reduce_order, *steps, *rows, *vectors, lane_axis)
    # Once unrolled, every index into the accumulators is a constant: they can be registers.
    for axis in (*steps, *rows, *vectors):
        stage.unroll(axis)
    stage.vectorize(lane_axis)
