"""Convolutions of bytes and of bfloat16 by dot product instructions.

Of data in NHWC, or in NCHW with one block of channels (``NCHW64c``), the lanes are output channels,
and the channels of a position are groups already: the data is read in place, group by group, and
broadcast. Operand B is the kernel, packed as ``OHWI16o4i`` when the model is compiled. Signals and
volumes run likewise.

Of NCHW images the lanes are positions along a row of the result, the groups are neighbouring input
channels, and the weights are broadcast: operand A is the kernel, packed as ``OHWI4i`` when the
model is compiled. The data is copied once, with its padding and with the channels of a group
contiguous; for a stride of ``s`` the rows are also split by the column index modulo ``s``. An
instruction then reads contiguous memory for every tap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, all_of, const, if_then_else
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import data_axes, side_padding, window_counts


@dataclass(frozen=True, slots=True)
class _Window:
    """The input of a convolution as whole register tiles read it."""

    attrs: ConvAttrs
    taps: tuple[PrimExpr, PrimExpr]
    extents: tuple[PrimExpr, PrimExpr]  # rows and columns of the result
    tile_columns: int

    @property
    def columns(self) -> PrimExpr:
        """Columns of the result, rounded up to whole tiles."""
        return _round_up(self.extents[1], self.tile_columns)

    def padded(self, data: te.Tensor, plan: DotInstruction) -> te.Tensor:
        """The data in the dtype of the instruction, padded to the columns that last tiles read."""
        batch, channels, height, width = data.shape
        (top, bottom), (left, _) = side_padding(self.attrs.padding, 2)
        stride = self.attrs.strides[1]
        # A multiple of the stride, by which ``grouped`` splits the row.
        row = (self.columns + (self.taps[1] - 1) * self.attrs.dilation[1] // stride) * stride

        def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
            inside = all_of(y >= top, y < height + top, x >= left, x < width + left)
            # The padding is shifted like the data: the correction counts it with the kernel's sum.
            value = plan.convert(data[n, c, y - top, x - left], plan.right)
            return if_then_else(inside, value, plan.zero(data.dtype, plan.right))

        return te.compute((batch, channels, height + top + bottom, row), element,
                          name="data_pad", role=te.StageRole.PADDING)

    def pixels(self, data: te.Tensor, plan: DotInstruction) -> te.Tensor:
        """``padded`` for pointwise convolutions: the pixels that are read, as a single row."""
        batch, channels, _, _ = data.shape
        rows, columns = self.extents
        down, right = self.attrs.strides

        def element(n: PrimExpr, c: PrimExpr, _: PrimExpr, p: PrimExpr) -> PrimExpr:
            value = plan.convert(data[n, c, p // columns * down, p % columns * right], plan.right)
            return if_then_else(p < rows * columns, value, plan.zero(data.dtype, plan.right))

        return te.compute((batch, channels, const(1), _round_up(rows * columns, self.tile_columns)),
                          element, name="data_pixels", role=te.StageRole.PADDING)

    def grouped(self, padded: te.Tensor, plan: DotInstruction, stride: int) -> te.Tensor:
        """The data as ``[n, c // group, y, x % stride, x // stride, c % group]``."""
        batch, channels, height, row = padded.shape
        return te.compute(
            (batch, channels // plan.k_group, height, const(stride), row // stride,
             const(plan.k_group)),
            lambda n, g, y, phase, x, k: padded[n, g * plan.k_group + k, y, x * stride + phase],
            name="data_groups", role=te.StageRole.CHANNEL_GROUPS)


def dot_product_conv(
    data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs, *, plan: DotInstruction,
    tile: RegisterTile, is_flat: bool,
) -> te.Tensor:
    """``nn.conv2d`` of NCHW data with a packed kernel (``OHWI4i``).

    ``tile`` is output channels by vectors of positions. With ``is_flat`` each result reads one
    pixel, and an image is a single row of all its positions.
    """
    outputs, taps_y, taps_x, groups, group = kernel.shape
    batch, _, height, width = data.shape
    (top, bottom), (left, right) = side_padding(attrs.padding, 2)
    rows, columns = window_counts((height, width), ((top, bottom), (left, right)),
                                  (taps_y, taps_x), attrs.dilation, attrs.strides)
    window = _Window(attrs, (taps_y, taps_x), (rows, columns), tile.nr_vectors * plan.lanes)
    lines, (down, stride) = (const(1), (1, 1)) if is_flat else (rows, attrs.strides)
    copied = window.grouped((window.pixels if is_flat else window.padded)(data, plan), plan, stride)
    axes = [te.reduce_axis(extent, name) for extent, name
            in ((taps_y, "ky"), (taps_x, "kx"), (groups, "d"), (group, "ki"))]
    ky, kx, d, k = axes

    def weight(o: PrimExpr) -> PrimExpr:
        return kernel[o, ky, kx, d, k].astype(plan.accumulator)

    def element(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        # Column ``x * stride + right`` of the padded row, in the order of the copy.
        right = kx * attrs.dilation[1]
        pixel = copied[n, d, y * down + ky * attrs.dilation[0], right % stride,
                       x + right // stride, k]
        return te.sum(weight(o) * pixel.astype(plan.accumulator), axes)

    positions = copied.shape[4] if is_flat else window.columns
    sums = te.compute((batch, outputs, lines, positions), element, name="dot",
                      role=te.StageRole.DOT_PRODUCT)
    corrections = _corrections(weight, axes, outputs, plan)
    out_dtype = attrs.out_dtype or data.dtype

    def result(n: PrimExpr, o: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        value = sums[(n, o, const(0), y * columns + x) if is_flat else (n, o, y, x)]
        if corrections is not None:
            value = value - corrections[o, const(0)] * const(plan.shift(right=True),
                                                             plan.accumulator)
        return value.astype(out_dtype)

    return te.compute((batch, outputs, rows, columns), result, name="conv")


def channels_last_dot_product_conv(
    data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs, *, plan: DotInstruction, is_flat: bool
) -> te.Tensor:
    """A convolution with a packed kernel (``OHWI16o4i``), without padding.

    Data and result are in NHWC or have all channels in one block.
    With ``is_flat`` each result reads one pixel, and an image is a single row of all its positions.
    """
    blocks, *taps, groups, lanes, group = kernel.shape
    images, result = Layout.parse(attrs.data_layout), Layout.parse(attrs.result_layout)
    batch, _, *sizes = convert_shape(images, data_axes(attrs.spatial), data.shape)
    extents = window_counts(sizes, ((0, 0),) * len(sizes), taps, attrs.dilation, attrs.strides)
    axes = [te.reduce_axis(extent, name) for extent, name in zip(
        (*taps, groups, group), (*(f"k{axis.lower()}" for axis in attrs.spatial), "d", "ki"),
        strict=True)]
    *window, d, k = axes

    def element(n: PrimExpr, at: Sequence[PrimExpr], o: PrimExpr) -> PrimExpr:
        where = {axis: position * stride + tap * step for axis, position, stride, tap, step
                 in zip(attrs.spatial, at, attrs.strides, window, attrs.dilation, strict=True)}
        pixel = data[images.indices({"N": n, **where, "C": d * plan.k_group + k})]
        weight = kernel[(o // plan.lanes, *window, d, o % plan.lanes, k)]
        return te.sum(pixel.astype(plan.accumulator) * weight.astype(plan.accumulator), axes)

    channels = blocks * lanes
    if is_flat:
        sums = te.compute((batch, element_count(extents), channels),
                          lambda n, p, o: element(n, unravel(p, extents), o),
                          name="dot", role=te.StageRole.DOT_PRODUCT)
    else:
        sums = te.compute((batch, *extents, channels), lambda n, *i: element(n, i[:-1], i[-1]),
                          name="dot", role=te.StageRole.DOT_PRODUCT)

    def of_layout(n: PrimExpr, *index: PrimExpr) -> PrimExpr:
        # All channels are one block, whose number is 0.
        *at, o = index if images.is_primal else index[1:]
        return sums[(n, ravel(at, extents), o) if is_flat else (n, *at, o)]

    shape = convert_shape(data_axes(attrs.spatial), result, (batch, channels, *extents))
    return te.compute(shape, of_layout, name="conv")


def _corrections(
    weight: Callable[[PrimExpr], PrimExpr], axes: list[te.IterVar], outputs: PrimExpr,
    plan: DotInstruction,
) -> te.Tensor | None:
    """Sums of the kernel, in all lanes, if the data is shifted, which adds a multiple of them."""
    if not plan.shift(right=True):
        return None
    ones = te.compute((plan.lanes, plan.k_group), lambda *_: const(1, plan.right), name="ones",
                      role=te.StageRole.ONES)
    return te.compute(
        (outputs, const(plan.lanes)),
        lambda o, lane: te.sum(weight(o) * ones[lane, axes[-1]].astype(plan.accumulator), axes),
        name="kernel_sums", role=te.StageRole.OPERAND_SUMS)


def _round_up(size: PrimExpr, step: int) -> PrimExpr:
    return (size + (step - 1)) // step * step
