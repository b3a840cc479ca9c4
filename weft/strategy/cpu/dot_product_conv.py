"""Convolutions of bytes and of bfloat16 through dot product instructions.

The lanes are positions along a row of the result, the groups are neighbouring input channels, and
the kernel's weights are broadcast: ``left`` is the kernel itself, packed as ``OHWI4i`` when a
model is compiled. For each row of the result the pixels under every tap are copied side by side
(the row's part of im2col), which stays in the first caches while all output channels use it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from weft import te
from weft.ir.dtype import float32, int32
from weft.ir.expr import Call
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import computes_below, elements, work_of
from weft.strategy.cpu.dot_product import DotPlan, plan_dot_product
from weft.strategy.cpu.dot_product_schedule import schedule_sums
from weft.strategy.cpu.injective import parallelize, vectorize_innermost
from weft.strategy.cpu.machine import PARALLEL_THRESHOLD, RegisterTile, choose_tile
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.target import Target
from weft.tir.expr import PrimExpr, all_of, const, if_then_else
from weft.topi.nn.conv import side_padding

_DATA = "NCHW"


def conv_plan(call: Call, types: tuple[Type | None, ...], target: Target) -> DotPlan | None:
    """The plan for an ungrouped 2-D convolution of known sizes with sums of 32 bits.

    ``types`` are those of the data and the kernel; the kernel is in any layout.
    """
    data, kernel = types
    attrs, result = call.attrs, call.checked_type
    fixed = [t for t in (data, kernel, result) if isinstance(t, TensorType) and is_static(t)]
    if len(fixed) < 3 or not isinstance(attrs, ConvAttrs) or attrs.spatial != "HW":
        return None
    x, w, y = fixed
    if attrs.groups != 1 or attrs.data_layout != _DATA or attrs.result_layout != _DATA:
        return None
    plan = plan_dot_product(w.dtype, x.dtype, target, keeps_left=True)
    if plan is None or 0 in (*x.shape, *w.shape, *y.shape):
        return None
    return plan if y.dtype in ((int32,) if plan.accumulator.is_int else (float32,)) else None


def kernel_layout(plan: DotPlan) -> str:
    """The layout of kernels that the instructions read as they are."""
    return f"OHWI{plan.group}i"


def dot_convolution(call: Call, target: Target) -> Iterator[Implementation]:
    """The implementation of ``nn.conv2d`` with a kernel in ``kernel_layout``."""
    plan = conv_plan(call, tuple(a.checked_type for a in call.args), target)
    if plan is None or getattr(call.attrs, "kernel_layout", "") != kernel_layout(plan):
        return
    _, outputs, _, width = call.checked_type.concrete_shape  # type: ignore[union-attr]
    tile = choose_tile(outputs, -(-width // plan.lanes), target, plan.accumulator)
    rows = max(n for n in range(1, tile.rows + 1) if outputs % n == 0)
    tile = RegisterTile(rows, tile.vectors)
    compute = functools.partial(_convolution, plan=plan, tile=tile)
    schedule = functools.partial(_schedule, plan=plan, tile=tile)
    yield Implementation(f"nn.conv2d.cpu.{plan.instruction.name}", schedule, compute)


@dataclass(frozen=True, slots=True)
class _Window:
    """Where the taps of an output position lie, in rows that whole tiles read."""

    attrs: ConvAttrs
    taps: tuple[PrimExpr, PrimExpr]
    columns: PrimExpr  # of the result, filled up to whole tiles

    def pixel(self, y: PrimExpr, x: PrimExpr, tap: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        (sy, sx), (dy, dx) = self.attrs.strides, self.attrs.dilation
        return (y * sy + tap // self.taps[1] * dy, x * sx + tap % self.taps[1] * dx)

    def padded(self, data: te.Tensor, plan: DotPlan) -> te.Tensor:
        """The data as the panels want it, with its border and what tiles read beyond it."""
        batch, channels, height, width = data.shape
        (top, bottom), (left, _) = side_padding(self.attrs.padding, 2)
        row = ((self.columns - 1) * self.attrs.strides[1]
               + (self.taps[1] - 1) * self.attrs.dilation[1] + 1)

        def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
            inside = all_of(y >= top, y < height + top, x >= left, x < width + left)
            value = plan.convert(data[n, c, y - top, x - left], plan.right)
            return if_then_else(inside, value, plan.zero(data.dtype, plan.right))

        return te.compute((batch, channels, height + top + bottom, row), element,
                          name="data_pad", tag="injective,border")


def _convolution(
    data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs, *, plan: DotPlan, tile: RegisterTile
) -> te.Tensor:
    outputs, taps_y, taps_x, groups, group = kernel.shape
    batch, _, height, width = data.shape
    (top, bottom), (left, right) = side_padding(attrs.padding, 2)
    rows = _positions(height + top + bottom, taps_y, attrs.strides[0], attrs.dilation[0])
    columns = _positions(width + left + right, taps_x, attrs.strides[1], attrs.dilation[1])
    wide = tile.vectors * plan.lanes
    window = _Window(attrs, (taps_y, taps_x), (columns + (wide - 1)) // wide * wide)
    padded = window.padded(data, plan)

    def pixel(*i: PrimExpr) -> PrimExpr:
        n, y, panel, depth, within, inner = i
        place = window.pixel(y, panel * wide + within, depth // groups)
        return padded[(n, depth % groups * plan.group + inner, *place)]

    depth = taps_y * taps_x * groups
    panels = te.compute((batch, rows, window.columns // wide, depth, const(wide), group), pixel,
                        name="panels", tag="injective,panels")
    d, k = te.reduce_axis(depth, "d"), te.reduce_axis(group, "ki")

    def weight(o: PrimExpr) -> PrimExpr:
        tap = d // groups
        return kernel[o, tap // taps_x, tap % taps_x, d % groups, k].astype(plan.accumulator)

    product = te.compute(
        (batch, outputs, rows, window.columns),
        lambda n, o, y, x: te.sum(
            weight(o) * panels[n, y, x // wide, d, x % wide, k].astype(plan.accumulator), [d, k]),
        name="dot", tag="dot_product")
    shift = plan.shift(right=True)
    out_dtype = attrs.out_dtype or data.dtype
    if not shift:
        return te.compute((batch, outputs, rows, columns),
                          lambda *i: product[i].astype(out_dtype), name="conv", tag="injective")
    ones = te.compute((plan.lanes, plan.group), lambda *_: const(1, plan.right), name="ones",
                      tag="ones")
    sums = te.compute(
        (outputs, const(plan.lanes)),
        lambda o, lane: te.sum(weight(o) * ones[lane, k].astype(plan.accumulator), [d, k]),
        name="kernel_sums", tag="dot_sums")
    return te.compute(
        (batch, outputs, rows, columns),
        lambda n, o, y, x: (product[n, o, y, x] - sums[o, const(0)]
                            * const(shift, plan.accumulator)).astype(out_dtype),
        name="conv", tag="injective")


def _positions(size: PrimExpr, taps: PrimExpr, stride: int, dilation: int) -> PrimExpr:
    return (size - (taps - 1) * dilation - 1) // stride + 1


def _schedule(ctx: ScheduleContext, *, plan: DotPlan, tile: RegisterTile) -> None:
    """A task is some columns of one row: their panels, then tile after tile of channels."""
    s = ctx.schedule
    stage = s[ctx.output]
    n, channel, row, column = stage.axis
    columns, inside = stage.split(column, factor=tile.vectors * plan.lanes)
    vector, lane = stage.split(inside, factor=plan.lanes)
    tall, short = stage.split(channel, factor=tile.rows)
    stage.reorder(n, row, columns, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(n, row, columns)
    for op in computes_below(ctx.outputs):
        inner, tags = s[op.output(0)], op.tag.split(",")
        if "dot_product" in tags:
            inner.compute_at(stage, tall)
            _tile_in_registers(inner, plan)
            if work_of(op) >= PARALLEL_THRESHOLD * plan.group:
                stage.parallel(task)
        elif "panels" in tags:
            inner.compute_at(stage, task)
            *_, within, group = inner.axis
            vectorize_innermost(inner, inner.fuse(within, group),
                                ctx.target.lanes(op.output(0).dtype))
        elif "border" in tags:
            *outer, last = inner.axis
            loops = [*outer, *vectorize_innermost(inner, last,
                                                  ctx.target.lanes(op.output(0).dtype))]
            if elements(op) >= PARALLEL_THRESHOLD:
                parallelize(inner, loops)
        elif "dot_sums" in tags:
            schedule_sums(inner, plan)
        elif op is not ctx.output.op and "ones" not in tags:
            inner.compute_inline()


def _tile_in_registers(stage: te.Stage, plan: DotPlan) -> None:
    stage.set_scope("local")
    n, channel, row, column = stage.axis
    depth, inner = stage.reduce_axis
    vectors, lanes = stage.split(column, factor=plan.lanes)
    stage.reorder(n, row, depth, channel, vectors, lanes, inner)
    stage.unroll(channel)
    stage.unroll(vectors)
    stage.tensorize(lanes, plan.instruction)
