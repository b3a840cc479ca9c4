"""The compute of convolutions in the original layout (NCHW), whose vectors run along a row.

The sum is that of ``topi.nn.conv``, over a view of the data that suits vectors:

- A pointwise convolution sees an image as a single row of all its positions.
- Where a stride of ``s`` skips columns, each row is split by the column index modulo ``s`` first:
  neighbours of the result then read neighbours in memory.
- Rows of the sum are rounded up to whole vectors; the result leaves out the excess. So neither the
  sums nor the weights are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.ir import Attrs, DType
from weft.op.nn.conv import ConvAttrs
from weft.support.errors import InternalError
from weft.tir import PrimExpr, all_of, const, if_then_else, int_value
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.layout import Layout
from weft.topi.nn.conv import (
    SPATIAL_AXES,
    conv,
    data_axes,
    kernel_axes,
    side_padding,
    window_counts,
)
from weft.topi.nn.window import window_count, window_span


def unblocked_conv(
    data: te.Tensor, kernel: te.Tensor, attrs: Attrs, *, lanes: int, panel: int = 0
) -> te.Tensor:
    """The compute that ``schedule_unblocked`` takes; ``lanes`` are those of the accumulators.

    A pointwise one packs its pixels into panels of ``panel`` columns if that is not 0.
    """
    if not isinstance(attrs, ConvAttrs):
        raise InternalError(f"a convolution got {type(attrs).__name__}")
    # A tap on the padding may be skipped only if it is finite: zero times infinity is NaN.
    return conv_rows(data, kernel, strides=attrs.strides, padding=attrs.padding,
                     dilation=attrs.dilation, groups=attrs.groups,
                     out_dtype=attrs.out_dtype or data.dtype, lanes=lanes,
                     skips=attrs.finite_kernel, panel=panel)


def conv_rows(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: DType,
    lanes: int,
    skips: bool,
    panel: int = 0,
) -> te.Tensor:
    """Cross-correlation of ``data`` (N, C, spatial axes) with ``kernel`` (O, I, spatial axes).

    Stages: a copy of the data (``data_rows`` or ``data_pixels``, role ``PADDING``) if it is padded,
    strided or not whole vectors wide; a view of the copy, to be inlined; the sum, with axes
    ``(n, o, ..., column)`` and a multiple of ``lanes`` columns; the result, in the shape of the
    image. With ``skips`` the sum skips taps above and below the image instead of padding there.
    """
    if is_pointwise(kernel.shape[2:], padding):
        return _pointwise(data, kernel, strides, groups, out_dtype, lanes, panel)
    spatial = SPATIAL_AXES[len(strides)]
    sides = side_padding(padding, len(spatial))
    extents = window_counts(data.shape[2:], sides, kernel.shape[2:], dilation, strides)
    span = window_span(kernel.shape[-1], dilation[-1])
    # The columns that the last whole vector of sums reads.
    wide = (_whole(extents[-1], lanes) - 1) * strides[-1] + span
    above = sides[:-1] if skips else [(0, 0)] * (len(spatial) - 1)  # taps that the sum skips
    copied = [*([(0, 0)] * len(above) if skips else sides[:-1]), sides[-1]]
    view = data
    if any(map(any, copied)) or strides[-1] > 1 or int_value(wide - data.shape[-1]) != 0:
        view = _rows(data, wide, copied, strides[-1])
    sums = conv(
        view, kernel, strides=strides, dilation=dilation, groups=groups,
        padding=(*(before for before, _ in above), 0, *(after for _, after in above), 0),
        data_layout=data_axes(spatial), kernel_layout=kernel_axes(spatial),
        out_layout=data_axes(spatial), out_dtype=out_dtype, skipped=spatial[:-1],
    )
    return te.compute((data.shape[0], kernel.shape[0], *extents), lambda *at: sums[at],
                      name="conv_columns")


def is_pointwise(taps: Sequence[PrimExpr], padding: Sequence[int]) -> bool:
    """Whether every result reads a single position of the image."""
    return not any(padding) and all(int_value(tap) == 1 for tap in taps)


def _whole(extent: PrimExpr, lanes: int) -> PrimExpr:
    return (extent + (lanes - 1)) // lanes * lanes


def _pointwise(
    data: te.Tensor, kernel: te.Tensor, strides: Sequence[int], groups: int, dtype: DType,
    lanes: int, panel: int,
) -> te.Tensor:
    batch, channels, *sizes = data.shape
    extents = [window_count(size, 1, stride) for size, stride in zip(sizes, strides, strict=True)]
    # A stride would make every vector of pixels a gather, once for each output channel: copy the
    # pixels instead, once.
    read = data
    if any(stride != 1 for stride in strides):
        read = te.compute(
            (batch, channels, *extents),
            lambda n, c, *at: data[(n, c, *(i * s for i, s in zip(at, strides, strict=True)))],
            name="data_pixels", role=te.StageRole.PADDING,
        )
    count = element_count(extents)
    whole = _whole(count, panel or lanes)

    def pixel(n: PrimExpr, c: PrimExpr, p: PrimExpr) -> PrimExpr:
        value = read[(n, c, *unravel(p, extents))]
        last = if_then_else(p < count, value, const(0, data.dtype))
        # The hint is about whole vectors, so that only the last one of an image is masked.
        return if_then_else(te.likely(p // lanes * lanes + lanes <= count), value, last)

    pixels = (_pixel_panels((batch, channels, whole), pixel, panel) if panel
              else te.compute((batch, channels, whole), pixel, name="pixels"))
    taps = te.compute((*kernel.shape[:2], const(1)),
                      lambda o, i, _: kernel[(o, i, *(const(0) for _ in strides))],
                      name="taps")
    layout, kernel_layout = Layout.parse("NCW"), Layout.parse("OIW")
    sums = conv(pixels, taps, strides=(1,), padding=(0,), dilation=(1,), groups=groups,
                data_layout=layout, kernel_layout=kernel_layout, out_layout=layout,
                out_dtype=dtype)
    return te.compute((batch, kernel.shape[0], *extents),
                      lambda n, o, *at: sums[n, o, ravel(at, extents)],
                      name="conv_pixels")


def _pixel_panels(
    shape: tuple[PrimExpr, PrimExpr, PrimExpr], pixel: Callable[..., PrimExpr], panel: int
) -> te.Tensor:
    """The pixels of an image by channels as panels of ``panel`` columns, and their view as rows.

    The rows of an image with as many bytes as whole pages share few sets of a cache, which no tile
    of output channels would find there again; a panel is contiguous.
    """
    batch, channels, whole = shape
    panels = te.compute(
        (batch, whole // panel, channels, const(panel)),
        lambda n, at, c, within: pixel(n, c, at * panel + within),
        name="pixel_panels", role=te.StageRole.PACKED_B)
    return te.compute(shape, lambda n, c, p: panels[n, p // panel, c, p % panel], name="pixels")


def _rows(
    data: te.Tensor, width: PrimExpr, sides: Sequence[tuple[int, int]], step: int
) -> te.Tensor:
    """``data`` padded by ``sides``, with rows of ``width``, as a view of a copy.

    The copy splits the columns by their index modulo ``step``: those that a vector of results reads
    are then contiguous.
    """
    above = [size + (before + after)
             for size, (before, after) in zip(data.shape[2:-1], sides[:-1], strict=True)]
    leading = (*data.shape[:2], *above)

    def padded(n: PrimExpr, c: PrimExpr, *at: PrimExpr) -> PrimExpr:
        inside: list[PrimExpr] = []
        for i, size, (before, after) in zip(at, data.shape[2:], sides, strict=True):
            inside += [i >= before] if before else []
            inside += [i < size + before] if after or i is at[-1] else []
        source = (i - before for i, (before, _) in zip(at, sides, strict=True))
        return if_then_else(te.likely(all_of(*inside)), data[(n, c, *source)],
                            const(0, data.dtype))

    columns = (width + (step - 1)) // step
    rows = te.compute((*leading, const(step), columns),
                      lambda *at: padded(*at[:-2], at[-1] * step + at[-2]),
                      name="data_rows", role=te.StageRole.PADDING)
    return te.compute((*leading, width),
                      lambda *at: rows[(*at[:-1], at[-1] % step, at[-1] // step)],
                      name="data_view")
