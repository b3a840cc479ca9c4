"""The loops of a GEMM: tiles in registers, blocks of K, split-K, and packing.

The decision says which of these to apply (``GemmLoops``); no cost is compared here.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import te
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.microkernel import accumulators, one_tensor, register_blocking
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.elementwise.schedule import parallelize, vectorize_innermost
from weft.strategy.cpu.elementwise.transpose import find_transposed_access, tile_transpose
from weft.strategy.cpu.gemm.blocking import SPLIT_K_WAYS, GemmBlocking, GemmLoops, GemmPlan
from weft.strategy.cpu.machine_model import machine_model, parallel_threshold
from weft.target import CpuTarget
from weft.te.walk import input_tensors
from weft.tir.expr import int_value
from weft.tir.transform.exact_tail import EXACT_TAIL

AttachPoint: TypeAlias = "tuple[te.Stage, te.IterVar]"
# The axes of C: those of the batch, that of M and that of N.
ResultAxes: TypeAlias = "tuple[list[te.IterVar], te.IterVar, te.IterVar]"


def schedule_gemm(ctx: CpuContext, *, plan: GemmPlan, flat_rows: bool = False) -> None:
    """Make the loops of ``plan``, and pack what its compute packs.

    With ``flat_rows`` all axes of the result but the last are M, else those before the last two are
    a batch.
    """
    reduction = reduction_below(ctx)
    packed = _inline_all_but_packed(ctx, reduction)
    attach = None
    if plan.loops is GemmLoops.SPLIT_K:
        _schedule_split_k(ctx, reduction, plan.blocking)
    elif plan.loops is GemmLoops.K_BLOCKS:
        _schedule_k_blocks(ctx, reduction, plan, flat_rows)
    else:
        attach = _schedule_tiles(ctx, reduction, plan, flat_rows)
    # Only B is packed inside the loop over panels: its tiles then find the panel in L2. Every panel
    # reads all of A, so A is packed once, before them.
    for op in packed:
        is_b = op.role is te.StageRole.PACKED_B
        panel_axes = 2 if is_b or plan.packs_a else 1  # an A that is not packed is only upcast
        _schedule_packing(ctx, op, attach if is_b else None, panel_axes)


def reduction_below(ctx: CpuContext) -> te.ComputeOp:
    """The GEMM itself: the one reduction among the anchor's computes."""
    return next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))


def _result_axes(stage: te.Stage, flat_rows: bool) -> ResultAxes:
    *leading, column = stage.axis
    if not flat_rows:
        return leading[:-1], leading[-1], column
    # Fused, M has one short tile at its end; unfused, each leading index would have one.
    return [], stage.fuse(*leading) if len(leading) > 1 else leading[0], column


def _schedule_tiles(
    ctx: CpuContext, reduction: te.ComputeOp, plan: GemmPlan, flat_rows: bool
) -> AttachPoint | None:
    """All of K inside a register tile; a task is a tile, or all tiles of a B panel.

    Returns the loop over B panels in the second case, for the packing of a panel to attach to.
    """
    s = ctx.schedule
    acc = accumulators(ctx, reduction.output(0))
    stage = s[ctx.output]
    by_panels = plan.loops is GemmLoops.B_PANELS
    task = _tile(stage, s[acc], _result_axes(stage, flat_rows), plan.blocking, by_panels=by_panels,
                 rows_first=plan.rows_first, unroll=plan.unroll)
    if plan.prefetches:
        _prefetch_next_panel(s[acc], s[acc].axis[0], plan.blocking)
    if plan.is_parallel:
        stage.parallel(task)
    return (stage, task) if by_panels else None


def _tile(
    stage: te.Stage, acc: te.Stage, axes: ResultAxes, blocking: GemmBlocking, *,
    by_panels: bool = False, beside: te.IterVar | None = None, rows_first: bool = False,
    unroll: int = 1,
) -> te.IterVar:
    """Compute ``acc`` in registers for each tile of ``stage``; returns the loop over tasks.

    ``beside`` is a loop whose iterations share a tile: their accumulators are independent.
    """
    batch, row, column = axes
    panel, inside = stage.split(column, factor=blocking.nr)
    vector, lane = stage.split(inside, factor=blocking.lanes)
    tile_row, row_in = stage.split(row, factor=blocking.mr)
    blocks, tile_row = _row_blocks(stage, tile_row, blocking)
    unrolled = [row_in, vector] if beside is None else [beside, row_in, vector]
    # Panels outside tiles of rows: the B panel is the operand that is worth keeping in L2.
    tiles = [tile_row, panel] if rows_first else [panel, tile_row]
    stage.reorder(*batch, *blocks, *tiles, *unrolled, lane)
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(lane)
    # A task that packs its B panel owns all tiles that read it. Without packing, single tiles are
    # more tasks to balance.
    task = stage.fuse(*batch, *blocks, *(tiles[:1] if by_panels else tiles))
    acc.compute_at(stage, tile_row if by_panels else task)
    *acc_batch, acc_row, acc_column = acc.axis
    if int_value(acc_row.extent) is None:
        tile, acc_row = acc.split(acc_row, factor=blocking.mr)
        acc_batch = [*acc_batch, tile]
        acc.pragma(acc_row, EXACT_TAIL, 1)
        stage.pragma(row_in, EXACT_TAIL, 1)
    if int_value(acc_column.extent) is None:
        tile, acc_column = acc.split(acc_column, factor=blocking.nr)
        acc_batch = [*acc_batch, tile]
    rows = [acc_row] if beside is None else [*acc_batch, acc_row]
    vectors, acc_lane = acc.split(acc_column, factor=blocking.lanes)
    register_blocking(acc, list(acc.reduce_axis), rows, [vectors], acc_lane,
                      acc_batch if beside is None else [], unroll=unroll)
    return task


def _prefetch_next_panel(acc: te.Stage, row: te.IterVar, blocking: GemmBlocking) -> None:
    """While the tiles of rows use a panel of the weight, load the next panel.

    Weights stream from L3 or from memory: hardware prefetchers stop at the end of a page, and would
    begin only as the first tile of rows reads the panel, which then waits for memory.
    """
    (k,) = acc.reduce_axis
    # A has two axes here, whatever its rank in the program.
    weight = next(t for t in input_tensors(acc.op) if t.ndim == 3)
    tiles = None  # all of them, where a symbolic M makes a single block
    if blocking.mc is not None:
        tiles = min(blocking.mc // blocking.mr, -(-size_of(row.extent) // blocking.mr))
    acc.prefetch_next_block(weight, k, [(row, blocking.mr, tiles)])


def _row_blocks(
    stage: te.Stage, tile_row: te.IterVar, blocking: GemmBlocking
) -> tuple[list[te.IterVar], te.IterVar]:
    """The loop over blocks of mc rows, if there are several, and that over the tiles of a block."""
    if blocking.mc is None:
        return [], tile_row
    tiles = blocking.mc // blocking.mr  # without a rest: no tile straddles two blocks
    if size_of(tile_row.extent) <= tiles:
        return [], tile_row
    outer, inner = stage.split(tile_row, factor=tiles)
    return [outer], inner


def _schedule_split_k(ctx: CpuContext, reduction: te.ComputeOp, blocking: GemmBlocking) -> None:
    """Split-K: partial sums over a fixed number of chunks of K in parallel, and then their sum.

    The number of chunks does not depend on the threads, so neither does the result's last bit.
    Several chunks of a small tile run side by side: one chain of additions would leave the FMA
    units waiting for its latency.
    """
    s = ctx.schedule
    sums = accumulators(ctx, reduction.output(0))
    chunk, _ = s[sums].split(s[sums].reduce_axis[0], nparts=SPLIT_K_WAYS)
    # The partial sums go to memory, where the final sum finds them; inside a task they are
    # accumulated in registers.
    partial = one_tensor(s.rfactor(sums, chunk))
    acc = one_tensor(s.cache_write(partial, "local"))
    chunk, *batch, row, column = s[partial].axis
    group, beside = s[partial].split(chunk, factor=_chains(blocking.tile, ctx.target))
    task = _tile(s[partial], s[acc], ([group, *batch], row, column), blocking, beside=beside)
    s[partial].parallel(task)
    stage = s[ctx.output]
    vector, lane = stage.split(stage.axis[-1], factor=blocking.lanes)
    stage.vectorize(lane)
    # The final sum takes one vector of C at a time, chunk by chunk in a fixed order.
    s[sums].compute_at(stage, vector)
    *around, column = s[sums].axis
    s[sums].reorder(*around, *s[sums].reduce_axis, column)
    s[sums].vectorize(column)


def _chains(tile: RegisterTile, target: CpuTarget) -> int:
    """Chunks of K to run side by side, so that an accumulator is ready when its next term is."""
    return max(1, int(machine_model(target).fma_latency) // tile.accumulators)


def _schedule_k_blocks(
    ctx: CpuContext, reduction: te.ComputeOp, plan: GemmPlan, flat_rows: bool
) -> None:
    """The kc loop: each block of K adds to sums in memory, of a block of rows and one B panel.

    ``rfactor`` over blocks of K makes the partial sums of one block a stage, which is computed in
    registers tile by tile. The block of K is outside the tiles, so that its share of the B panel
    stays in L2 for all of them.
    """
    s, blocking = ctx.schedule, plan.blocking
    mr, lanes = blocking.mr, blocking.lanes
    # The sums of mc rows exceed the registers; mc keeps them to about a quarter of L2.
    acc = accumulators(ctx, reduction.output(0), scope="global")
    stage = s[ctx.output]
    batch, row, column = _result_axes(stage, flat_rows)
    block, row_in = stage.split(row, factor=blocking.mc)
    panel, column_in = stage.split(column, factor=blocking.nr)
    stage.reorder(*batch, block, panel, row_in, column_in)
    _, lane = stage.split(column_in, factor=lanes)
    stage.vectorize(lane)
    # A panel that exceeds L2 is always enough work for threads: tasks run in parallel without a
    # check.
    task = stage.fuse(*batch, block, panel)
    stage.parallel(task)
    k_block, _ = s[acc].split(s[acc].reduce_axis[0], factor=blocking.kc)
    partial = one_tensor(s.rfactor(acc, k_block))
    sums = s[acc]
    sums.compute_at(stage, task)
    *sums_batch, sums_row, sums_column = sums.axis
    tile_row, sums_row_in = sums.split(sums_row, factor=mr)
    vector, sums_lane = sums.split(sums_column, factor=lanes)
    register_blocking(sums, [], [sums_row_in], [vector], sums_lane,
                      [*sums_batch, *sums.reduce_axis, tile_row])
    _schedule_partial_sums(s[partial], sums, tile_row, lanes)
    if plan.prefetches:  # the next block of K follows in the panel
        _prefetch_next_panel(s[partial], s[partial].axis[-2], blocking)


def _schedule_partial_sums(
    stage: te.Stage, sums: te.Stage, tile_row: te.IterVar, lanes: int
) -> None:
    """The microkernel of one block of K, inside the tile of ``sums`` that it is added to."""
    stage.set_scope("local")
    stage.compute_at(sums, tile_row)
    *around, row, column = stage.axis
    vector, lane = stage.split(column, factor=lanes)
    register_blocking(stage, list(stage.reduce_axis), [row], [vector], lane, around)


def _inline_all_but_packed(ctx: CpuContext, reduction: te.ComputeOp) -> list[te.ComputeOp]:
    """The packed operands; the other computes that feed the reduction are inlined."""
    packed = []
    for op in computes_below((ctx.anchor,)):
        if op in (reduction, ctx.anchor.op):
            continue
        if op.role in te.PACKED_OPERANDS:
            packed.append(op)
        else:
            ctx.schedule[op.output(0)].compute_inline()
    return packed


def _schedule_packing(
    ctx: CpuContext, op: te.ComputeOp, attach: AttachPoint | None, panel_axes: int
) -> None:
    """Pack with vectors: inside a loop of the GEMM, or all at once in parallel.

    Rows that lie along K are transposed in registers, a tile at a time.
    """
    stage, lanes = ctx.schedule[op.output(0)], ctx.target.lanes(op.output(0).dtype)
    *outer, inner = op.axis
    transposed = find_transposed_access([[axis] for axis in op.axis], op.body, lanes)
    loops = (tile_transpose(stage, list(op.axis), transposed, ctx.target) if transposed is not None
             else [*outer, *vectorize_innermost(stage, inner, lanes)])
    if attach is not None:
        if transposed is not None and not transposed.narrow:
            stage.reorder(loops[-1], loops[-2])  # a vector of rows at a time, read front to back
        stage.compute_at(*attach)
    # Inside a task the packing runs on the thread of the task.
    else:
        parallelize_packing(stage, op, loops, ctx.target, panel_axes=panel_axes)


def parallelize_packing(
    stage: te.Stage, op: te.ComputeOp, loops: list[te.IterVar], target: CpuTarget, *,
    panel_axes: int,
) -> None:
    """Threads share the panels, which are the innermost ``panel_axes`` axes of ``op``.

    A symbolic size counts as large.
    """
    if any(int_value(axis.extent) is None for axis in op.axis):
        outer = loops[:len(op.axis) - panel_axes]
        stage.parallel(stage.fuse(*outer) if len(outer) > 1 else outer[0])
    elif elements(op) >= parallel_threshold(target):
        parallelize(stage, loops)
