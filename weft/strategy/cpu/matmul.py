"""Matrix products of two activations: both operands are packed at run time, then tiled.

The left operand goes into panels as tall as the register tile, the right one into panels as wide,
so that the hot loop reads two streams front to back. Packing costs one pass over each operand and
pays for itself from a few dozen rows and columns on.

A short reduction runs whole inside the register tile. A long one is cut (Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008): blocks of the result stay in the second
level cache while one slice of the depth after the other is added, a panel of the right operand in
the first level, a block of the left one in the second.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft import te
from weft.ir.dtype import float32
from weft.ir.expr import Call
from weft.ir.types import TensorType
from weft.op.nn.dense import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.analysis import computes_below, elements, is_reduction, size_of, work_of
from weft.strategy.cpu.contraction import accumulators, one_tensor, tile_in_registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.dot_product_matmul import dot_products
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD, RegisterTile, choose_tile
from weft.strategy.cpu.transpose import Crossing, find_crossing, tile_crossing
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import strategy
from weft.target import Target
from weft.te.walk import loads_of
from weft.tir.expr import PrimExpr, all_of, const, if_then_else, int_value
from weft.topi.broadcast import broadcast_shape

# Below these, packing costs more than it saves: measured from 2 to 16 of each.
MIN_PACKED_ROWS, MIN_PACKED_COLUMNS = 4, 3
# Depth of a slice. Deeper slices write the result back less often; a panel of one is then as large
# as the first-level cache, which the hardware's prefetching forgives (measured 128 to 512: best).
SLICE_DEPTH = 512
CHUNK = 16  # consecutive depths of one line that the left panels keep together: 64 bytes


def _products(call: Call, target: Target) -> Iterator[Implementation]:
    name = getattr(call.op, "name", "matmul")
    attrs = call.attrs
    if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs):
        yield from dot_products(name, call, target)
        yield from packing_at_run_time(
            name, call, target, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b
        )
    yield Implementation(f"{name}.cpu.generic", schedule_default, cost=1.0)


strategy("nn.matmul", target="cpu")(_products)
strategy("nn.batch_matmul", target="cpu")(_products)


def packing_at_run_time(
    name: str, call: Call, target: Target, *, transpose_a: bool = False, transpose_b: bool
) -> Iterator[Implementation]:
    """The implementation that packs both operands, where the call is large enough for it."""
    rows, columns, depth = _sizes(call, transpose_a=transpose_a)
    if rows >= MIN_PACKED_ROWS and columns >= MIN_PACKED_COLUMNS and depth:
        tile = _tile(rows, columns, target)
        product = functools.partial(
            packed_matmul, transpose_a=transpose_a, transpose_b=transpose_b, tile=tile,
            lanes=target.lanes("float32"),
        )
        yield Implementation(
            f"{name}.cpu.packed",
            functools.partial(schedule_packed, tile=tile, lanes=target.lanes("float32")),
            lambda a, b, _: product(a, b),
        )


def _sizes(call: Call, *, transpose_a: bool) -> tuple[int, int, int]:
    """Rows, columns and depth; zeros where the call is not a product of float32 matrices."""
    result, left, right = (call.checked_type, *(arg.checked_type for arg in call.args))
    if not (isinstance(result, TensorType) and isinstance(left, TensorType)
            and isinstance(right, TensorType)):
        return 0, 0, 0
    if any(t.dtype is not float32 for t in (result, left, right)):
        return 0, 0, 0
    dims = (*result.shape[-2:], left.shape[-2 if transpose_a else -1])
    if not 2 <= result.ndim == left.ndim or not all(isinstance(d, int) for d in dims):
        return 0, 0, 0
    if right.ndim != left.ndim:
        return 0, 0, 0
    return dims  # type: ignore[return-value]


def _tile(rows: int, columns: int, target: Target) -> RegisterTile:
    lanes = target.lanes("float32")
    return choose_tile(rows, -(-columns // lanes), target, float32)


def packed_matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, tile: RegisterTile,
    lanes: int,
) -> te.Tensor:
    """The product over packed panels; what lies beyond the matrices is zero, so nothing is guarded.

    It has whole vectors of columns, of which the result leaves out those that are too many.

    ``b_panels[.., n // width, k, n % width]`` has the columns of one depth side by side. The left
    panels are ``[.., m // height, k // 16, m % height, k % 16]`` where a line of ``a`` is
    contiguous along the depth, so that packing copies whole cache lines; where it is contiguous
    along the rows (``transpose_a``), they are like those of ``b``.
    """
    rows, depth = _pick(a.shape, transposed=transpose_a)
    _, columns = _pick(b.shape, transposed=transpose_b)
    height, width = tile.rows, tile.vectors * lanes
    left = (line_panels(a, rows, depth, height) if not transpose_a
            else _panels(a, rows, depth, height, depth_first=True, name="a_panels"))
    right = _panels(b, columns, depth, width, depth_first=not transpose_b, name="b_panels")
    k = te.reduce_axis(depth, name="k")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim + b.ndim > 4 else ()

    def element(*index: PrimExpr) -> PrimExpr:
        *at, m, n = index
        where = (k // CHUNK, m % height, k % CHUNK) if left.ndim == a.ndim + 2 else (k, m % height)
        x = left[(*_batch_index(a, at), m // height, *where)]
        y = right[(*_batch_index(b, at), n // width, k, n % width)]
        return te.sum(x * y, k)

    whole = (columns + (lanes - 1)) // lanes * lanes
    product = te.compute((*batch, rows, whole), element, name="matmul", tag="matmul")
    if int_value(columns) == int_value(whole):
        return product
    return te.compute((*batch, rows, columns), lambda *i: product[i], name="matmul_columns",
                      tag="injective")


def _pick(shape: tuple[PrimExpr, ...], *, transposed: bool) -> tuple[PrimExpr, PrimExpr]:
    first, second = shape[-2:]
    return (second, first) if transposed else (first, second)


def _batch_index(x: te.Tensor, at: list[PrimExpr]) -> tuple[PrimExpr, ...]:
    leading = x.ndim - 2
    if not leading:
        return ()
    own = at[len(at) - leading:]
    return tuple(
        const(0) if int_value(size) == 1 else i
        for size, i in zip(x.shape[:leading], own, strict=True)
    )


def _panels(
    x: te.Tensor, lines: PrimExpr, depth: PrimExpr, width: int, *, depth_first: bool, name: str
) -> te.Tensor:
    """``x`` as panels of ``width`` lines, the lines of one depth side by side."""
    count = (lines + (width - 1)) // width

    def element(*index: PrimExpr) -> PrimExpr:
        *at, panel, k, within = index
        line = panel * width + within
        value = x[(*at, k, line)] if depth_first else x[(*at, line, k)]
        return if_then_else(line < lines, value, const(0, x.dtype))

    shape = (*x.shape[:-2], count, depth, const(width))
    return te.compute(shape, element, name=name, tag="injective,panels")


def line_panels(x: te.Tensor, lines: PrimExpr, depth: PrimExpr, height: int) -> te.Tensor:
    """``x`` as panels of ``height`` lines, 16 consecutive depths of a line side by side."""
    panels, chunks = (lines + (height - 1)) // height, (depth + (CHUNK - 1)) // CHUNK

    def element(*index: PrimExpr) -> PrimExpr:
        *at, panel, chunk, within, inner = index
        line, k = panel * height + within, chunk * CHUNK + inner
        inside = all_of(line < lines, k < depth)
        return if_then_else(inside, x[(*at, line, k)], const(0, x.dtype))

    shape = (*x.shape[:-2], panels, chunks, const(height), const(CHUNK))
    return te.compute(shape, element, name="a_panels", tag="injective,panels")


def schedule_packed(
    ctx: ScheduleContext, *, tile: RegisterTile, lanes: int, flat_rows: bool = False
) -> None:
    """Pack, then tile; parallel over tiles, or over cache blocks of a large result.

    ``lanes`` is the vector axis of the right panels, ``tile.vectors`` counts such vectors. With
    ``flat_rows`` all axes but the last are rows of one matrix, else those before are a batch.
    """
    product = reduction_below(ctx)
    _schedule_packing(ctx, product, ctx.target.lanes(ctx.output.dtype))
    depth = size_of(product.reduce_axis[0].extent)
    rows, columns = (size_of(axis.extent) for axis in product.axis[-2:])
    resident = 4 * depth * max(rows, tile.vectors * lanes)
    if depth > SLICE_DEPTH and resident > ctx.target.l2_bytes and min(rows, columns) > 64:
        _schedule_blocks(ctx, product, tile, lanes, flat_rows)
    else:
        _schedule_tiles(ctx, product, tile, lanes, flat_rows)


def reduction_below(ctx: ScheduleContext) -> te.ComputeOp:
    """The product itself: the one reduction among the anchor's computes."""
    return next(op for op in reversed(computes_below((ctx.anchor,))) if is_reduction(op))


def _result_axes(
    stage: te.Stage, flat_rows: bool
) -> tuple[list[te.IterVar], te.IterVar, te.IterVar]:
    *leading, column = stage.axis
    if not flat_rows:
        return leading[:-1], leading[-1], column
    return [], stage.fuse(*leading) if len(leading) > 1 else leading[0], column


def _schedule_tiles(
    ctx: ScheduleContext, product: te.ComputeOp, tile: RegisterTile, lanes: int, flat_rows: bool
) -> None:
    """The whole reduction inside a register tile."""
    s = ctx.schedule
    acc = accumulators(ctx, product.output(0))
    stage = s[ctx.output]
    batch, row, column = _result_axes(stage, flat_rows)
    panels, inside = stage.split(column, factor=tile.vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    tall, short = stage.split(row, factor=tile.rows)
    stage.reorder(*batch, panels, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*batch, panels, tall)
    s[acc].compute_at(stage, task)
    acc_stage = s[acc]
    *acc_batch, acc_row, acc_column = acc_stage.axis
    acc_vector, acc_lane = acc_stage.split(acc_column, factor=lanes)
    reduction = list(acc_stage.split(acc_stage.reduce_axis[0], factor=CHUNK))
    tile_in_registers(acc_stage, reduction, [acc_row], [acc_vector], acc_lane, acc_batch)
    if work_of(product) >= PARALLEL_THRESHOLD:
        stage.parallel(task)


def _schedule_blocks(
    ctx: ScheduleContext, product: te.ComputeOp, tile: RegisterTile, lanes: int, flat_rows: bool
) -> None:
    """Blocks of the result in the second-level cache, the depth in slices.

    ``rfactor`` over slices makes the product of one slice a stage of its own, which is computed
    in registers tile by tile and added to the block.
    """
    s = ctx.schedule
    width = tile.vectors * lanes
    block = max(1, ctx.target.l2_bytes // (4 * 4 * SLICE_DEPTH))  # a quarter of the cache each
    height_tiles, width_tiles = max(1, block // tile.rows), max(1, block // width)
    acc = accumulators(ctx, product.output(0), scope="global")
    stage = s[ctx.output]
    batch, row, column = _result_axes(stage, flat_rows)
    row_block, row_in = stage.split(row, factor=tile.rows * height_tiles)
    column_block, column_in = stage.split(column, factor=width * width_tiles)
    stage.reorder(*batch, row_block, column_block, row_in, column_in)
    _, lane = stage.split(column_in, factor=lanes)
    stage.vectorize(lane)
    task = stage.fuse(*batch, row_block, column_block)
    stage.parallel(task)
    slices, _ = s[acc].split(s[acc].reduce_axis[0], factor=SLICE_DEPTH)
    part = one_tensor(s.rfactor(acc, slices))
    sums = s[acc]
    sums.compute_at(stage, task)
    *sums_batch, sums_row, sums_column = sums.axis
    tall, short = sums.split(sums_row, factor=tile.rows)
    panels, inside = sums.split(sums_column, factor=width)
    vector, sums_lane = sums.split(inside, factor=lanes)
    around = [*sums_batch, *sums.reduce_axis, panels, tall]
    tile_in_registers(sums, [], [short], [vector], sums_lane, around)
    _compute_slice(s[part], sums, tall, lanes)


def _compute_slice(stage: te.Stage, sums: te.Stage, tall: te.IterVar, lanes: int) -> None:
    stage.set_scope("local")
    stage.compute_at(sums, tall)
    *around, row, column = stage.axis
    vector, lane = stage.split(column, factor=lanes)
    reduction = list(stage.split(stage.reduce_axis[0], factor=CHUNK))
    tile_in_registers(stage, reduction, [row], [vector], lane, around)


def _schedule_packing(ctx: ScheduleContext, product: te.ComputeOp, lanes: int) -> None:
    """Panels are copied with vectors, in parallel; what else feeds the product is inlined."""
    for op in computes_below((ctx.anchor,)):
        if op in (product, ctx.anchor.op):
            continue
        stage = ctx.schedule[op.output(0)]
        if "panels" not in op.tag.split(","):
            stage.compute_inline()
            continue
        *outer, inner = op.axis
        crossing = _crossing_of_panels(op, lanes)
        loops = (tile_crossing(stage, list(op.axis), crossing, lanes) if crossing is not None
                 else [*outer, *vectorize_innermost(stage, inner, lanes)])
        if elements(op) >= PARALLEL_THRESHOLD:
            parallelize(stage, loops)


def _crossing_of_panels(op: te.ComputeOp, lanes: int) -> Crossing | None:
    """Lines that lie along the depth are turned in registers, a tile at a time.

    Only where they make whole panels: the last one would read lines that there are not.
    """
    lines = next((size_of(load.producer.shape[-2]) for load in loads_of(op.body)), 0)
    if lines % size_of(op.axis[-1].extent):
        return None
    return find_crossing([[axis] for axis in op.axis], op.body, lanes)
