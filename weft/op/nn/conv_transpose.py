"""Transposed convolution over one, two and three spatial axes: the way up in U-Nets and GANs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import CONVOLUTION, Case, Op, OpPattern, TensorType, attr, define_op, op_case
from weft.ir.shape import Dim, Shape, dim_add, dim_floordiv, dim_mul
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.nn.conv import (
    ConvAttrs,
    expect_kernel_size,
    expect_whole_axes,
    padding_attr,
    steps_attr,
)
from weft.op.nn.conv_reference import images_in, unblocked_images
from weft.op.relations import (
    layout_attr,
    output_dtype,
    to_layout,
)
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_array
from weft.topi.nn.conv import conv_transpose as topi_conv_transpose
from weft.topi.nn.conv import data_axes, side_padding, transposed_kernel_axes
from weft.topi.nn.window import window_span

_KERNEL_DOC = "layout of the kernel; O counts the channels of one group"
_PADDING_DOC = "elements taken away around the result"


def _output_padding_attr(axes: int) -> Any:
    return attr((0,) * axes, "elements added at the end of the result, below stride or dilation",
                check=lambda values: all(v >= 0 for v in values), expected="numbers >= 0")


@dataclass(frozen=True, kw_only=True)
class ConvTransposeAttrs(ConvAttrs):
    """Attributes of every transposed convolution; the members fix the number of axes."""

    output_padding: tuple[int, ...] = attr(doc="elements added at the end of the result")


@dataclass(frozen=True, kw_only=True)
class Conv1DTransposeAttrs(ConvTransposeAttrs):
    strides: tuple[int] = steps_attr(1, "distance of the data's elements in the result")
    padding: tuple[int, ...] = padding_attr(1, _PADDING_DOC)
    output_padding: tuple[int] = _output_padding_attr(1)
    dilation: tuple[int] = steps_attr(1, "distance of the taps")
    kernel_size: tuple[int] | None = attr(None, "width of the kernel")
    data_layout: str = attr("NCW", "layout of the data")
    kernel_layout: str = attr("IOW", _KERNEL_DOC)


@dataclass(frozen=True, kw_only=True)
class Conv2DTransposeAttrs(ConvTransposeAttrs):
    strides: tuple[int, int] = steps_attr(2, "distances of the data's elements in the result")
    padding: tuple[int, ...] = padding_attr(2, _PADDING_DOC)
    output_padding: tuple[int, int] = _output_padding_attr(2)
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    kernel_size: tuple[int, int] | None = attr(None, "height and width of the kernel")
    data_layout: str = attr("NCHW", "layout of the data")
    kernel_layout: str = attr("IOHW", _KERNEL_DOC)


@dataclass(frozen=True, kw_only=True)
class Conv3DTransposeAttrs(ConvTransposeAttrs):
    strides: tuple[int, int, int] = steps_attr(3, "distances of the data's elements in the result")
    padding: tuple[int, ...] = padding_attr(3, _PADDING_DOC)
    output_padding: tuple[int, int, int] = _output_padding_attr(3)
    dilation: tuple[int, int, int] = steps_attr(3, "distance of the taps")
    kernel_size: tuple[int, int, int] | None = attr(None, "depth, height and width of the kernel")
    data_layout: str = attr("NCDHW", "layout of the data")
    kernel_layout: str = attr("IODHW", _KERNEL_DOC)


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, kernel = types
    attrs = ctx.attrs_as(ConvTransposeAttrs)
    spatial = attrs.spatial
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    ctx.expect_rank(0, data, data_layout.ndim)
    ctx.expect_rank(1, kernel, kernel_layout.ndim)
    ctx.expect_number(0, data)
    ctx.expect_same_dtype(1, kernel, data.dtype)
    images = to_layout(ctx, data_layout, data_axes(spatial), data.shape, arg=0)
    taps = to_layout(ctx, kernel_layout, transposed_kernel_axes(spatial), kernel.shape, arg=1)
    expect_whole_axes(ctx, data_layout, spatial)
    channels = _check_channels(ctx, attrs, images, taps)
    out = (images[0], channels, *_sizes(ctx, attrs, images, taps))
    wanted = layout_attr(ctx, "out_layout") if attrs.out_layout else data_layout
    shape = to_layout(ctx, data_axes(spatial), wanted, out, arg=1)
    ctx.output(TensorType(shape, output_dtype(attrs, data.dtype)))
    return True


def _check_channels(
    ctx: RelationContext, attrs: ConvTransposeAttrs, data: Shape, kernel: Shape
) -> Dim:
    """The output channels, once the channels of data, kernel and attributes agree."""
    data_layout, kernel_layout = Layout.parse(attrs.data_layout), Layout.parse(attrs.kernel_layout)
    if isinstance(data[1], int) and data[1] % attrs.groups:
        ctx.fail("the input channels do not split into groups", arg=0,
                 axis=data_layout.index_of("C"),
                 expected=f"a number divisible by groups = {attrs.groups}", got=data[1])
    ctx.expect_dim(1, kernel_layout.index_of("I"), kernel[0], data[1],
                   "input channels do not match", why=f" ({data[1]} input channels)",
                   help=f"the kernel layout is {attrs.kernel_layout}")
    channels = dim_mul(kernel[1], attrs.groups)
    if attrs.channels is not None:
        ctx.expect_dim(1, kernel_layout.index_of("O"), kernel[1],
                       dim_floordiv(attrs.channels, attrs.groups), "output channels do not match",
                       why=f" (the attribute channels = {attrs.channels})")
    expect_kernel_size(ctx, attrs.kernel_size, kernel_layout, attrs.spatial, kernel[2:])
    return channels


def _sizes(
    ctx: RelationContext, attrs: ConvTransposeAttrs, data: Shape, kernel: Shape
) -> list[Dim]:
    layout = Layout.parse(attrs.data_layout)
    result: list[Dim] = []
    sides = side_padding(attrs.padding, len(attrs.spatial))
    for i, (letter, (before, after)) in enumerate(zip(attrs.spatial, sides, strict=True)):
        size, taps, extra = data[2 + i], kernel[2 + i], attrs.output_padding[i]
        if taps == 0 or size == 0:
            ctx.fail("the kernel is empty" if taps == 0 else "the data is empty",
                     arg=int(taps == 0), expected="a size of 1 or more", got=0)
        if extra >= max(attrs.strides[i], attrs.dilation[i]):
            ctx.fail("output_padding is too large", axis=layout.index_of(letter), arg=0,
                     expected="less than the stride or the dilation", got=extra)
        span = window_span(taps, attrs.dilation[i])
        whole = dim_add(dim_mul(dim_add(size, -1), attrs.strides[i]), span)
        out = dim_add(whole, extra - before - after)
        if isinstance(out, int) and out < 1:
            ctx.fail("the padding removes the whole result", arg=0,
                     axis=layout.index_of(letter), expected=f"padding below {whole}",
                     got=before + after)
        result.append(out)
    return result


def _reference(data: np.ndarray, kernel: np.ndarray, attrs: ConvTransposeAttrs) -> np.ndarray:
    """Scatters the result of one GEMM for each tap, in float64 or int64."""
    spatial = attrs.spatial
    wide = np.int64 if np.issubdtype(data.dtype, np.integer) else np.float64
    x = unblocked_images(data, Layout.parse(attrs.data_layout), spatial).astype(wide)
    w = transform_array(kernel, Layout.parse(attrs.kernel_layout),
                        transposed_kernel_axes(spatial)).astype(wide)
    n, sizes, groups = x.shape[0], x.shape[2:], attrs.groups
    taps, outputs = w.shape[2:], w.shape[1]
    whole = [(size - 1) * stride + (tap - 1) * step + 1 + extra for size, stride, tap, step, extra
             in zip(sizes, attrs.strides, taps, attrs.dilation, attrs.output_padding, strict=True)]
    result = np.zeros((n, groups, outputs, *whole), wide)
    inputs = x.shape[1] // groups
    grouped = x.reshape(n, groups, inputs, *sizes)
    weights = w.reshape(groups, inputs, outputs, *taps)
    for tap in np.ndindex(*taps):
        positions = tuple(slice(k * step, k * step + (size - 1) * stride + 1, stride)
                          for k, step, size, stride
                          in zip(tap, attrs.dilation, sizes, attrs.strides, strict=True))
        share = np.einsum("ngi...,gio->ngo...", grouped, weights[(..., *tap)])
        result[(..., *positions)] += share
    result = result.reshape(n, groups * outputs, *whole)
    cut = tuple(slice(before, size - after) for size, (before, after)
                in zip(whole, side_padding(attrs.padding, len(spatial)), strict=True))
    dtype = data.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
    return images_in(result[(..., *cut)], Layout.parse(attrs.result_layout), spatial).astype(dtype)


def _define(name: str, attrs_type: type[ConvTransposeAttrs], cases: Sequence[Case]) -> Op:
    def run(data: te.Tensor, kernel: te.Tensor, attrs: ConvTransposeAttrs) -> te.Tensor:
        return topi_conv_transpose(
            data, kernel, strides=attrs.strides, padding=attrs.padding,
            output_padding=attrs.output_padding, dilation=attrs.dilation, groups=attrs.groups,
            data_layout=Layout.parse(attrs.data_layout),
            kernel_layout=Layout.parse(attrs.kernel_layout),
            out_layout=Layout.parse(attrs.result_layout), out_dtype=attrs.out_dtype or data.dtype,
        )

    run.__doc__ = (
        "The gradient of a convolution with respect to its data.\n\n"
        "Every element of the data adds the kernel, scaled by it, to the result at ``strides``\n"
        "times its index; ``padding`` is cut off on all sides, ``output_padding`` added at the end."
    )
    op = define_op(name, attrs=attrs_type, relation=_relation, pattern=OpPattern.OUT_FUSABLE,
                   level=2, inputs=("data", "kernel"), traits=CONVOLUTION)(run)
    op.refer(decomposition="weft.op.nn.subpixel:transposed_as_convolution")
    op.batching(merging(layout="data_layout"))
    op.spec(lambda data, kernel, **values: _reference(data, kernel, attrs_type(**values)), *cases)
    return op


conv1d_transpose = _define("nn.conv1d_transpose", Conv1DTransposeAttrs, (
    op_case((1, 3, 5), (3, 2, 3), strides=(2,), padding=(1,), output_padding=(1,)),
    op_case((2, 4, 4), (4, 2, 4), strides=(3,), groups=2, dilation=(2,)),
    op_case((1, 5, 2), (3, 2, 2), data_layout="NWC", kernel_layout="WOI"),
    op_case((1, 1, 4), (1, 2, 2), padding=(3, 0)),
))
conv2d_transpose = _define("nn.conv2d_transpose", Conv2DTransposeAttrs, (
    op_case((1, 3, 4, 3), (3, 2, 2, 2), strides=(2, 2)),
    op_case((2, 3, 3, 4), (3, 4, 3, 3), strides=(2, 2), padding=(1, 1), output_padding=(1, 1)),
    op_case((1, 2, 3, 3), (2, 2, 3, 2), padding=(0, 1, 2, 0), dilation=(2, 1)),
    op_case((1, 4, 3, 3), (4, 3, 4, 4), strides=(2, 1), padding=(1,), groups=2, channels=6,
            kernel_size=(4, 4)),
    op_case((1, 3, 4, 4), (3, 1, 3, 3), strides=(2, 2), groups=3, padding=(2, 2)),
    op_case((1, 3, 3, 2), (2, 2, 3, 2), strides=(3, 2), data_layout="NHWC", kernel_layout="HWOI",
            dilation=(1, 2)),
    op_case((1, 2, 3, 3), (2, 1, 1, 1), strides=(3, 2)),
    op_case((1, 2, 3, 3), (2, 2, 3, 3), dtypes="int32", low=-5, high=5, strides=(2, 2)),
    op_case((0, 2, 3, 3), (2, 2, 3, 3)),
))
conv3d_transpose = _define("nn.conv3d_transpose", Conv3DTransposeAttrs, (
    op_case((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), strides=(2, 2, 2)),
    op_case((1, 2, 2, 3, 3), (2, 1, 3, 2, 3), strides=(1, 2, 2), padding=(1, 0, 1, 1, 0, 0),
            output_padding=(0, 1, 0), groups=2),
    op_case((1, 2, 2, 3, 2), (2, 2, 2, 1, 2), data_layout="NDHWC", kernel_layout="DHWOI",
            dilation=(1, 2, 1)),
))
