"""Deformable convolution: taps displaced by offsets (Dai et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, as_prim, const
from weft.topi.image.sample import AxisTaps, axis_taps, mix
from weft.topi.nn.conv import side_padding


def deformable_conv2d(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, *, strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], deformable_groups: int, groups: int,
    out_dtype: DType,
) -> te.Tensor:
    """Data NCHW, offset (N, deformable groups * taps * 2, height, width), kernel OIHW.

    Lookup tables hold the elements that each displaced tap interpolates; stages ``deformed`` (all
    taps of all positions) and ``deformable_conv2d`` (the sum with the kernel).
    """
    batch, channels, *sizes = data.shape
    outputs, inputs, rows, columns = kernel.shape
    positions = offset.shape[2:]
    taps = _moved_taps(offset, sizes, (rows, columns), strides, side_padding(padding, 2), dilation,
                       deformable_groups)
    per_group = channels // deformable_groups

    def deformed(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, y: PrimExpr,
                 x: PrimExpr) -> PrimExpr:
        group = c // per_group if deformable_groups > 1 else const(0)
        return mix(lambda at: data[(n, c, *at)], taps, (n, group, i, j, y, x))

    sampled = te.compute((batch, channels, rows, columns, *positions), deformed, name="deformed",
                         role=te.StageRole.RESAMPLING)
    ic = te.reduce_axis(inputs, name="ic")
    kh, kw = te.reduce_axis(rows, name="kh"), te.reduce_axis(columns, name="kw")

    def element(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        first = o // (outputs // groups) * inputs if groups > 1 else const(0)
        value = sampled[n, first + ic.var, kh.var, kw.var, y, x].astype(out_dtype)
        return te.sum(value * kernel[o, ic.var, kh.var, kw.var].astype(out_dtype), (ic, kh, kw))

    return te.compute((batch, outputs, *positions), element, name="deformable_conv2d")


def _moved_taps(
    offset: te.Tensor, sizes: Sequence[PrimExpr], kernel: Sequence[PrimExpr],
    strides: Sequence[int], sides: Sequence[tuple[int, int]], dilation: Sequence[int],
    groups: int,
) -> list[AxisTaps]:
    """The taps along height and width for (n, group, kh, kw, y, x)."""
    rows, columns = kernel
    shape = (offset.shape[0], as_prim(groups), rows, columns, *offset.shape[2:])
    found = []
    for axis, size in enumerate(sizes):

        def position(n: PrimExpr, g: PrimExpr, i: PrimExpr, j: PrimExpr, y: PrimExpr, x: PrimExpr,
                     axis: int = axis) -> PrimExpr:
            moved = offset[n, ((g * rows + i) * columns + j) * 2 + axis, y, x]
            out, tap = (y, i) if axis == 0 else (x, j)
            start = out * strides[axis] - sides[axis][0] + tap * dilation[axis]
            return start.astype(offset.dtype) + moved

        found.append(axis_taps(position, shape, size, method="bilinear", padding="zeros",
                               fold=lambda p: p))
    return found
