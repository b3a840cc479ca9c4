"""Convolutions of bytes and of bfloat16 through dot product instructions.

The lanes are positions along a row of the result, the groups are neighbouring input channels, and
the kernel's weights are broadcast: ``left`` is the kernel itself, packed as ``OHWI4i`` when a
model is compiled. The data is copied once, a group's channels side by side and its border around
it; where columns are read ``s`` apart, the rows are split by the remainder modulo ``s``. What an
instruction reads then lies in one piece, whatever the tap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from weft import te
from weft.op.nn.conv import ConvAttrs
from weft.strategy.analysis import computes_below, elements, work_of
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.dot_product.instruction import DotPlan
from weft.strategy.cpu.dot_product.schedule import schedule_sums
from weft.strategy.cpu.elementwise.schedule import parallelize, vectorize_innermost
from weft.strategy.cpu.machine_model import PARALLEL_THRESHOLD
from weft.tir.expr import PrimExpr, all_of, const, if_then_else
from weft.topi.nn.conv import side_padding, window_counts


def dot_product_conv(
    plan: DotPlan, tile: RegisterTile, *, is_flat: bool
) -> tuple[Callable[..., te.Tensor], Callable[[CpuContext], None]]:
    """Compute and schedule of ``nn.conv2d`` with a packed kernel (``OHWI4i``).

    ``tile`` is output channels by vectors of positions. With ``is_flat`` each result reads one
    pixel, and an image is a single row of all its positions.
    """
    return (functools.partial(_convolution, plan=plan, tile=tile, flat=is_flat),
            functools.partial(_schedule, plan=plan, tile=tile, flat=is_flat))


@dataclass(frozen=True, slots=True)
class _Window:
    """Where the taps of an output position lie, in rows that whole tiles read."""

    attrs: ConvAttrs
    taps: tuple[PrimExpr, PrimExpr]
    extents: tuple[PrimExpr, PrimExpr]  # rows and columns of the result
    wide: int  # columns of a tile

    @property
    def columns(self) -> PrimExpr:
        """Of the result, in whole tiles."""
        return _round_up(self.extents[1], self.wide)

    def padded(self, data: te.Tensor, plan: DotPlan) -> te.Tensor:
        """The data as the instruction wants it, with its border and what tiles read beyond it."""
        batch, channels, height, width = data.shape
        (top, bottom), (left, _) = side_padding(self.attrs.padding, 2)
        stride = self.attrs.strides[1]
        row = (self.columns + (self.taps[1] - 1) * self.attrs.dilation[1] // stride) * stride

        def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
            inside = all_of(y >= top, y < height + top, x >= left, x < width + left)
            value = plan.convert(data[n, c, y - top, x - left], plan.right)
            return if_then_else(inside, value, plan.zero(data.dtype, plan.right))

        return te.compute((batch, channels, height + top + bottom, row), element,
                          name="data_pad", role=te.StageRole.PADDING)

    def pixels(self, data: te.Tensor, plan: DotPlan) -> te.Tensor:
        """As ``padded`` for kernels of one tap: the pixels that are read, in a single row."""
        batch, channels, _, _ = data.shape
        rows, columns = self.extents
        down, right = self.attrs.strides

        def element(n: PrimExpr, c: PrimExpr, _: PrimExpr, p: PrimExpr) -> PrimExpr:
            value = plan.convert(data[n, c, p // columns * down, p % columns * right], plan.right)
            return if_then_else(p < rows * columns, value, plan.zero(data.dtype, plan.right))

        return te.compute((batch, channels, const(1), _round_up(rows * columns, self.wide)),
                          element, name="data_pixels", role=te.StageRole.PADDING)

    def grouped(self, padded: te.Tensor, plan: DotPlan, stride: int) -> te.Tensor:
        """``[n, c // group, y, x % stride, x // stride, c % group]``."""
        batch, channels, height, row = padded.shape
        return te.compute(
            (batch, channels // plan.group, height, const(stride), row // stride,
             const(plan.group)),
            lambda n, g, y, phase, x, k: padded[n, g * plan.group + k, y, x * stride + phase],
            name="data_groups", role=te.StageRole.CHANNEL_GROUPS)


def _convolution(
    data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs, *, plan: DotPlan, tile: RegisterTile,
    flat: bool,
) -> te.Tensor:
    outputs, taps_y, taps_x, groups, group = kernel.shape
    batch, _, height, width = data.shape
    (top, bottom), (left, right) = side_padding(attrs.padding, 2)
    rows, columns = window_counts((height, width), ((top, bottom), (left, right)),
                                  (taps_y, taps_x), attrs.dilation, attrs.strides)
    window = _Window(attrs, (taps_y, taps_x), (rows, columns), tile.nr_vectors * plan.lanes)
    lines, (down, stride) = (const(1), (1, 1)) if flat else (rows, attrs.strides)
    copied = window.grouped((window.pixels if flat else window.padded)(data, plan), plan, stride)
    axes = [te.reduce_axis(extent, name) for extent, name
            in ((taps_y, "ky"), (taps_x, "kx"), (groups, "d"), (group, "ki"))]
    ky, kx, d, k = axes

    def weight(o: PrimExpr) -> PrimExpr:
        return kernel[o, ky, kx, d, k].astype(plan.accumulator)

    def element(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        right = kx * attrs.dilation[1]
        pixel = copied[n, d, y * down + ky * attrs.dilation[0], right % stride,
                       x + right // stride, k]
        return te.sum(weight(o) * pixel.astype(plan.accumulator), axes)

    positions = copied.shape[4] if flat else window.columns
    product = te.compute((batch, outputs, lines, positions), element, name="dot",
                         role=te.StageRole.DOT_PRODUCT)
    corrections = _corrections(weight, axes, outputs, plan)
    out_dtype = attrs.out_dtype or data.dtype

    def result(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        value = product[(n, o, const(0), y * columns + x) if flat else (n, o, y, x)]
        if corrections is not None:
            value = value - corrections[o, const(0)] * const(plan.shift(right=True),
                                                             plan.accumulator)
        return value.astype(out_dtype)

    return te.compute((batch, outputs, rows, columns), result, name="conv")


def _corrections(
    weight: Callable[[PrimExpr], PrimExpr], axes: list[te.IterVar], outputs: PrimExpr,
    plan: DotPlan,
) -> te.Tensor | None:
    """Sums of the kernel, in all lanes, where the data is moved: it adds a multiple of them."""
    if not plan.shift(right=True):
        return None
    ones = te.compute((plan.lanes, plan.group), lambda *_: const(1, plan.right), name="ones",
                      role=te.StageRole.ONES)
    return te.compute(
        (outputs, const(plan.lanes)),
        lambda o, lane: te.sum(weight(o) * ones[lane, axes[-1]].astype(plan.accumulator), axes),
        name="kernel_sums", role=te.StageRole.OPERAND_SUMS)


def _round_up(size: PrimExpr, step: int) -> PrimExpr:
    return (size + (step - 1)) // step * step


def _schedule(ctx: CpuContext, *, plan: DotPlan, tile: RegisterTile, flat: bool) -> None:
    """A task is some columns of one row: tile after tile of channels."""
    s = ctx.schedule
    stage = s[ctx.output]
    n, channel, row, column = stage.axis
    around = [n, row]
    if flat:
        around, column = [n], stage.fuse(row, column)
    columns, inside = stage.split(column, factor=tile.nr_vectors * plan.lanes)
    vector, lane = stage.split(inside, factor=plan.lanes)
    tall, short = stage.split(channel, factor=tile.mr)
    stage.reorder(*around, columns, tall, short, vector, lane)
    stage.unroll(short)
    stage.unroll(vector)
    stage.vectorize(lane)
    task = stage.fuse(*around, columns)
    for op in computes_below(ctx.outputs):
        inner = s[op.output(0)]
        lanes = ctx.target.lanes(op.output(0).dtype)
        if op.role is te.StageRole.DOT_PRODUCT:
            inner.compute_at(stage, tall)
            _tile_in_registers(inner, plan)
            if work_of(op) >= PARALLEL_THRESHOLD * plan.group:
                stage.parallel(task)
        elif op.role is te.StageRole.CHANNEL_GROUPS:
            *outer, within, group = inner.axis
            _schedule_copy(inner, op, outer, inner.fuse(within, group), lanes)
        elif op.role is te.StageRole.PADDING:
            *outer, last = inner.axis
            _schedule_copy(inner, op, outer, last, lanes)
        elif op.role is te.StageRole.OPERAND_SUMS:
            schedule_sums(inner, plan)
        elif op is not ctx.output.op and op.role is not te.StageRole.ONES:
            inner.compute_inline()


def _schedule_copy(
    stage: te.Stage, op: te.ComputeOp, outer: list[te.IterVar], inner: te.IterVar, lanes: int
) -> None:
    loops = [*outer, *vectorize_innermost(stage, inner, lanes)]
    if elements(op) >= PARALLEL_THRESHOLD:
        parallelize(stage, loops)


def _tile_in_registers(stage: te.Stage, plan: DotPlan) -> None:
    stage.set_scope("local")
    n, channel, row, column = stage.axis
    *taps, depth, inner = stage.reduce_axis
    vectors, lanes = stage.split(column, factor=plan.lanes)
    stage.reorder(n, row, *taps, depth, channel, vectors, lanes, inner)
    stage.unroll(channel)
    stage.unroll(vectors)
    stage.tensorize(lanes, plan.instruction)
