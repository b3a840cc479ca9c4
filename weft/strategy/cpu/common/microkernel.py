"""Register tiling shared by convolutions and matrix products.

The result of the contraction is computed tile by tile into ``local`` memory (registers): the
vector axis is contiguous in the packed weights, the row axis supplies broadcast operands, and the
whole reduction runs inside the tile. What was fused behind the contraction reads the tile while it
is still in registers.
"""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below
from weft.strategy.cpu.common.context import CpuContext


def accumulators(
    ctx: CpuContext, reduction: te.Tensor | None = None, *, scope: str = "local"
) -> te.Tensor:
    """The tensor to keep in registers: the reduction, or a cache of it where it is the output.

    ``reduction`` is the anchor unless given. Everything between it and the output is inlined, so
    that the output's loops are the only ones to tile; lookup tables stay what they are.
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
    """The stage that a primitive made of a compute with one output."""
    return result[0] if isinstance(result, tuple) else result


def register_blocking(
    stage: te.Stage,
    reduce_order: list[te.IterVar],
    rows: list[te.IterVar],
    vectors: list[te.IterVar],
    lane_axis: te.IterVar,
    around: list[te.IterVar],
) -> None:
    """Order the accumulating stage: ``around``, reductions, then the unrolled register tile.

    Vectors go inside rows: a broadcast operand then serves all its vectors at once and its
    register is free again, while the few vector operands stay. The other way round the
    broadcasts of a whole tile are alive together, and spill.
    """
    stage.reorder(*around, *reduce_order, *rows, *vectors, lane_axis)
    for axis in (*rows, *vectors):
        stage.unroll(axis)
    stage.vectorize(lane_axis)
