"""Matrix products of two activations: both operands are packed at run time, then tiled.

The left operand goes into panels as tall as the register tile, the right one into panels as wide,
so that the hot loop reads two streams front to back. Packing costs one pass over each operand and
pays for itself from a few dozen rows and columns on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from weft import te
from weft.ir.expr import Call
from weft.ir.types import TensorType
from weft.strategy.analysis import computes_below, elements, size_of
from weft.strategy.cpu.contraction import accumulators, tile_in_registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD, RegisterTile, choose_tile
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import strategy
from weft.target import Target
from weft.tir.expr import PrimExpr, const, if_then_else, int_value
from weft.topi.broadcast import broadcast_shape

MIN_PACKED_SIZE = 8


def _products(call: Call, target: Target) -> Iterator[Implementation]:
    name = getattr(call.op, "name", "matmul")
    rows, columns, depth = _sizes(call)
    if min(rows, columns, depth) >= MIN_PACKED_SIZE:
        tile = _tile(rows, columns, target)
        yield Implementation(
            f"{name}.cpu.packed",
            functools.partial(schedule_packed, tile=tile),
            functools.partial(packed_matmul, tile=tile, lanes=target.lanes("float32")),
        )
    yield Implementation(f"{name}.cpu.generic", schedule_default, cost=1.0)


strategy("nn.matmul", target="cpu")(_products)
strategy("nn.batch_matmul", target="cpu")(_products)


def _sizes(call: Call) -> tuple[int, int, int]:
    """Rows, columns and depth; zeros where the call is not a product of two float32 matrices."""
    result, left = call.checked_type, call.args[0].checked_type
    if not isinstance(result, TensorType) or not isinstance(left, TensorType):
        return 0, 0, 0
    dims = (*result.shape[-2:], left.shape[-2 if call.attrs.transpose_a else -1])
    if result.ndim < 2 or str(left.dtype) != "float32" or str(result.dtype) != "float32":
        return 0, 0, 0
    if not all(isinstance(d, int) for d in dims):
        return 0, 0, 0
    return dims  # type: ignore[return-value]


def _tile(rows: int, columns: int, target: Target) -> RegisterTile:
    lanes = target.lanes("float32")
    return choose_tile(rows, -(-columns // lanes), target, TensorType.of(()).dtype)


def packed_matmul(
    a: te.Tensor, b: te.Tensor, attrs: Any, *, tile: RegisterTile, lanes: int
) -> te.Tensor:
    """The product over panels ``a_panels[.., m // T, k, m % T]``, ``b_panels[.., n // P, k, n % P]``.

    Elements beyond the matrices are zero, so that the hot loop needs no guard on operands.
    """
    transpose_a, transpose_b = attrs.transpose_a, attrs.transpose_b
    rows, depth = _pick(a.shape, transposed=transpose_a)
    _, columns = _pick(b.shape, transposed=transpose_b)
    height, width = tile.rows, tile.vectors * lanes
    left = _panels(a, rows, depth, height, row_last=transpose_a, name="a_panels")
    right = _panels(b, columns, depth, width, row_last=not transpose_b, name="b_panels")
    k = te.reduce_axis(depth, name="k")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim + b.ndim > 4 else ()

    def element(*index: PrimExpr) -> PrimExpr:
        *at, m, n = index
        x = left[(*_batch_index(a, at), m // height, k, m % height)]
        y = right[(*_batch_index(b, at), n // width, k, n % width)]
        return te.sum(x * y, k)

    return te.compute((*batch, rows, columns), element, name="matmul", tag="matmul")


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
    x: te.Tensor, lines: PrimExpr, depth: PrimExpr, width: int, *, row_last: bool, name: str
) -> te.Tensor:
    """``x`` as panels of ``width`` lines, the lines of one depth side by side."""
    count = (lines + (width - 1)) // width

    def element(*index: PrimExpr) -> PrimExpr:
        *at, panel, k, within = index
        line = panel * width + within
        value = x[(*at, k, line)] if row_last else x[(*at, line, k)]
        return if_then_else(line < lines, value, const(0, x.dtype))

    shape = (*x.shape[:-2], count, depth, const(width))
    return te.compute(shape, element, name=name, tag="injective,panels")


def schedule_packed(ctx: ScheduleContext, *, tile: RegisterTile) -> None:
    """Pack, then tile (rows x panels) in registers; parallel over panels and row tiles."""
    s = ctx.schedule
    lanes = ctx.target.lanes(ctx.output.dtype)
    _schedule_packing(ctx, lanes)
    acc = accumulators(ctx)
    stage = s[ctx.output]
    *batch, row, column = stage.op.axis
    panels, inside = stage.split(column, factor=tile.vectors * lanes)
    vector, lane = stage.split(inside, factor=lanes)
    tall, short = stage.split(row, factor=tile.rows)
    stage.reorder(*batch, panels, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*batch, panels, tall)
    s[acc].compute_at(stage, task)
    _order_reduction(s[acc], lanes)
    if elements(stage.op) * size_of(s[acc].op.reduce_axis[0].extent) >= PARALLEL_THRESHOLD:
        stage.parallel(task)


def _order_reduction(stage: te.Stage, lanes: int) -> None:
    *batch, row, column = stage.op.axis
    vector, lane = stage.split(column, factor=lanes)
    tile_in_registers(stage, list(stage.op.reduce_axis), [row], [vector], lane, batch)


def _schedule_packing(ctx: ScheduleContext, lanes: int) -> None:
    for op in computes_below((ctx.anchor,)):
        if op is ctx.anchor.op:
            continue
        stage = ctx.schedule[op.output(0)]
        if "panels" not in op.tag.split(","):
            stage.compute_inline()
            continue
        *outer, inner = op.axis
        loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
        if elements(op) >= PARALLEL_THRESHOLD:
            parallelize(stage, loops)


