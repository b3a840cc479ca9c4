"""Two-dimensional convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, attr
from weft.ir.dtype import DType
from weft.ir.op import OpPattern, case, define_op
from weft.ir.shape import Dim, Shape, dim_add, dim_floordiv, dim_mul, dim_sub
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.op.nn.conv_reference import NCHW, OIHW, conv2d_nchw, from_nchw, in_nchw
from weft.op.relations import (
    attrs_as,
    expect_dim,
    expect_number,
    expect_rank,
    expect_same_dtype,
    layout_attr,
    output_dtype,
    tensors_known,
    to_layout,
)
from weft.topi.layout import Layout, transform_array
from weft.topi.nn.conv2d import conv2d as topi_conv2d
from weft.topi.nn.conv2d import full_padding


def positive(values: Sequence[int]) -> bool:
    return all(v > 0 for v in values)


def is_padding(values: Sequence[int]) -> bool:
    """One number for all sides, two for (height, width), four for (top, left, bottom, right)."""
    return len(values) in (1, 2, 4) and all(v >= 0 for v in values)


PADDING_EXPECTED = "1, 2 (height, width) or 4 (top, left, bottom, right) numbers >= 0"


@dataclass(frozen=True, kw_only=True)
class Conv2DAttrs(Attrs):
    strides: tuple[int, int] = attr((1, 1), "steps along height and width", check=positive,
                                    expected="two numbers >= 1")
    padding: tuple[int, ...] = attr((0, 0), "zeros around the data: " + PADDING_EXPECTED,
                                    check=is_padding, expected=PADDING_EXPECTED)
    dilation: tuple[int, int] = attr((1, 1), "distance of the taps", check=positive,
                                     expected="two numbers >= 1")
    groups: int = attr(1, "groups of channels convolved apart", check=lambda g: g > 0,
                       expected="1 or more")
    channels: int | None = attr(None, "output channels; None to read them off the kernel")
    kernel_size: tuple[int, int] | None = attr(None, "height and width of the kernel; None to "
                                               "read them off the kernel")
    data_layout: str = attr("NCHW", "layout of the data")
    kernel_layout: str = attr("OIHW", "layout of the kernel; I counts the channels of one group")
    out_layout: str = attr("", "layout of the result; empty for that of the data")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")


def out_layout_of(attrs: Conv2DAttrs) -> str:
    return attrs.out_layout or attrs.data_layout


def window_dim(size: Dim, span: Dim, stride: int) -> Dim:
    """How many windows of ``span`` elements, ``stride`` apart, fit into ``size``."""
    return dim_add(dim_floordiv(dim_sub(size, span), stride), 1)


def _conv2d_relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 2)
    if types is None:
        return False
    data, kernel = types
    attrs = attrs_as(ctx, Conv2DAttrs)
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    expect_rank(ctx, 0, data, data_layout.ndim)
    expect_rank(ctx, 1, kernel, kernel_layout.ndim)
    expect_number(ctx, 0, data)
    expect_same_dtype(ctx, 1, kernel, data.dtype)
    plain = to_layout(ctx, data_layout, NCHW, data.shape, arg=0)
    taps = to_layout(ctx, kernel_layout, OIHW, kernel.shape, arg=1)
    if any(data_layout.factor_of(letter) != 1 for letter in "NHW"):
        ctx.fail("only the channels of the data may be split", arg=0,
                 expected="a data_layout such as NCHW16c", got=data_layout)
    _check_channels(ctx, attrs, plain, taps)
    out = (plain[0], taps[0], *_spatial(ctx, attrs, plain, taps))
    wanted = layout_attr(ctx, "out_layout") if attrs.out_layout else data_layout
    shape = to_layout(ctx, NCHW, wanted, out, arg=1)
    ctx.output(TensorType(shape, output_dtype(attrs, data.dtype)))
    return True


def _check_channels(ctx: RelationContext, attrs: Conv2DAttrs, data: Shape, kernel: Shape) -> None:
    """Input and output channels agree between data, kernel and attributes."""
    data_layout, kernel_layout = Layout.parse(attrs.data_layout), Layout.parse(attrs.kernel_layout)
    for axis, size, what in ((kernel_layout.index_of("O"), kernel[0], "output"),
                             (data_layout.index_of("C"), data[1], "input")):
        if isinstance(size, int) and size % attrs.groups:
            ctx.fail(f"the {what} channels do not split into groups", arg=int(what == "output"),
                     axis=axis, expected=f"a number divisible by groups = {attrs.groups}",
                     got=size)
    expected = dim_floordiv(data[1], attrs.groups)
    expect_dim(ctx, 1, kernel_layout.index_of("I"), kernel[1], expected,
               "input channels do not match",
               why=f" ({data[1]} input channels / groups = {attrs.groups})",
               help=_layout_hint(attrs, data, kernel))
    if attrs.channels is not None:
        expect_dim(ctx, 1, kernel_layout.index_of("O"), kernel[0], attrs.channels,
                   "output channels do not match", why=" (the attribute channels)")
    for axis, letter in enumerate("HW"):
        size = None if attrs.kernel_size is None else attrs.kernel_size[axis]
        if size is not None:
            expect_dim(ctx, 1, kernel_layout.index_of(letter), kernel[2 + axis], size,
                       "the kernel's size does not match", why=" (the attribute kernel_size)")


def _layout_hint(attrs: Conv2DAttrs, data: Shape, kernel: Shape) -> str:
    """What the kernel looks like, and the other layout where it would fit."""
    if attrs.kernel_layout == "OIHW" and kernel[2] == data[1]:
        sizes = ", ".join(map(str, kernel))
        return f'the kernel layout is OIHW; pass kernel_layout="HWIO" if the kernel is ({sizes})'
    return f"the data layout is {attrs.data_layout}, the kernel layout {attrs.kernel_layout}"


def _spatial(ctx: RelationContext, attrs: Conv2DAttrs, data: Shape, kernel: Shape) -> list[Dim]:
    top, left, bottom, right = full_padding(attrs.padding)
    layout = Layout.parse(attrs.data_layout)
    result: list[Dim] = []
    for i, (before, after) in enumerate(((top, bottom), (left, right))):
        size, taps = data[2 + i], kernel[2 + i]
        if taps == 0:
            ctx.fail("the kernel is empty", arg=1, expected="a kernel of size 1 or more", got=0)
        span = dim_add(dim_mul(dim_add(taps, -1), attrs.dilation[i]), 1)
        padded = dim_add(size, before + after)
        if isinstance(padded, int) and isinstance(span, int) and padded < span:
            ctx.fail("the kernel is larger than the padded data", arg=0,
                     axis=layout.index_of("HW"[i]), expected=f"a size of {span} or more",
                     got=f"{padded} (padding included)")
        result.append(window_dim(padded, span, attrs.strides[i]))
    return result


@define_op("nn.conv2d", attrs=Conv2DAttrs, relation=_conv2d_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def conv2d(data: te.Tensor, kernel: te.Tensor, attrs: Conv2DAttrs) -> te.Tensor:
    """Cross-correlation of images with a kernel, zeros around them.

    out[n, o, y, x] = sum over c, i, j of data[n, c, y * s0 + i * d0 - top, x * s1 + j * d1 - left]
    * kernel[o, c, i, j], where o sees the channels c of its group.
    """
    return topi_conv2d(
        data, kernel, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
        groups=attrs.groups, data_layout=Layout.parse(attrs.data_layout),
        kernel_layout=Layout.parse(attrs.kernel_layout),
        out_layout=Layout.parse(out_layout_of(attrs)), out_dtype=attrs.out_dtype or data.dtype,
    )


def _conv2d_reference(data: np.ndarray, kernel: np.ndarray, **values: Any) -> np.ndarray:
    attrs = Conv2DAttrs(**values)
    result = conv2d_nchw(
        in_nchw(data, Layout.parse(attrs.data_layout)),
        transform_array(kernel, Layout.parse(attrs.kernel_layout), OIHW),
        attrs.strides, full_padding(attrs.padding), attrs.dilation, attrs.groups,
    )
    dtype = data.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
    return from_nchw(result, Layout.parse(out_layout_of(attrs))).astype(dtype)


conv2d.spec(
    _conv2d_reference,
    case((1, 3, 5, 6), (4, 3, 3, 3), padding=(1, 1)),
    case((2, 4, 7, 5), (6, 4, 3, 2), strides=(2, 1), padding=(0, 1, 2, 0)),
    case((1, 2, 8, 8), (3, 2, 3, 3), dilation=(2, 3), padding=(2,)),
    case((1, 6, 4, 4), (4, 3, 1, 1), groups=2, channels=4, kernel_size=(1, 1)),
    case((1, 3, 5, 5), (3, 1, 3, 3), groups=3, padding=(1, 1)),
    case((1, 2, 4, 4), (6, 1, 3, 3), groups=2),
    case((1, 5, 5, 3), (3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO"),
    case((1, 1, 4, 5, 8), (2, 1, 3, 3, 8, 4), data_layout="NCHW8c", kernel_layout="OIHW8i4o",
         out_layout="NCHW4c", padding=(1, 1)),
    case((1, 3, 5, 5), (2, 1, 3, 3, 3, 4), kernel_layout="OIHW3i4o", out_layout="NCHW4c",
         strides=(2, 2)),
    case((1, 2, 5, 5, 4), (2, 1, 3, 3, 1, 4), data_layout="NCHW4c", kernel_layout="OIHW1i4o",
         groups=8, padding=(1, 1)),
    case((1, 2, 3, 3, 4), (2, 1, 1, 1, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o",
         groups=2),
    case((1, 2, 3, 3, 4), (2, 1, 2, 2, 2, 4), data_layout="NCHW4c", kernel_layout="OIHW2i4o",
         groups=4),
    case((1, 2, 4, 4), (2, 2, 3, 3), dtypes="int32", low=-5, high=5),
    case((0, 2, 4, 4), (2, 2, 3, 3)),
)
