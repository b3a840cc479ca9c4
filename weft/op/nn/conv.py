"""Convolutions over signals, images and volumes: ``nn.conv1d``, ``nn.conv2d``, ``nn.conv3d``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import (
    Attrs,
    Call,
    Case,
    DType,
    Expr,
    Op,
    OpPattern,
    TensorType,
    attr,
    define_op,
    op_case,
)
from weft.ir.analysis import known_type
from weft.ir.shape import Dim, Shape, dim_add, dim_floordiv, may_be_multiple
from weft.ir.traits import CONVOLUTION, MixedPrecision
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merged, merging, moved, repeated, with_attrs
from weft.op.gradients import known_shape
from weft.op.nn.conv_reference import conv_reference, images_in, unblocked_images
from weft.op.relations import (
    layout_attr,
    output_dtype,
    to_layout,
)
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import conv as topi_conv
from weft.topi.nn.conv import SPATIAL_AXES, data_axes, full_padding, kernel_axes, side_padding
from weft.topi.nn.window import window_count, window_span


def positive(values: Sequence[int]) -> bool:
    return all(v > 0 for v in values)


def padding_expected(axes: int) -> str:
    if axes == 1:
        return "1 or 2 (left, right) numbers >= 0"
    order = {2: "height, width", 3: "depth, height, width"}[axes]
    sides = {2: "top, left, bottom, right", 3: "front, top, left, back, bottom, right"}[axes]
    return f"1, {axes} ({order}) or {2 * axes} ({sides}) numbers >= 0"


def steps_attr(axes: int, doc: str) -> Any:
    """An attribute with a positive number for each spatial axis, 1 by default."""
    word = {1: "a number", 2: "two numbers", 3: "three numbers"}[axes]
    return attr((1,) * axes, doc, check=positive, expected=f"{word} >= 1")


def padding_attr(axes: int, doc: str) -> Any:
    """An attribute with one number for all sides, for each axis, or for each side."""

    def is_padding(values: Sequence[int]) -> bool:
        return len(values) in (1, axes, 2 * axes) and all(v >= 0 for v in values)

    expected = padding_expected(axes)
    return attr((0,) * axes, doc, check=is_padding, expected=expected)


class ConvAlgorithm(StrEnum):
    """How a convolution is computed."""

    DIRECT_BLOCKED = "direct_blocked"
    """Vectors are blocks of output channels (kernel OIHW16o); data and result NCHW16c or not."""
    DIRECT_UNBLOCKED = "direct_unblocked"
    """Vectors are positions of a row, in the original layouts NCHW and OIHW."""
    DEPTHWISE_BLOCKED = "depthwise_blocked"
    """One channel in each group, vectors are blocks of channels (NCHW16c)."""
    DEPTHWISE_UNBLOCKED = "depthwise_unblocked"
    """One channel in each group, vectors are positions of a row (NCHW)."""
    DOT_PRODUCT = "dot_product"
    """Instructions that add up several products of narrow operands in each lane."""
    WINOGRAD_F2 = "winograd_f2"
    """Winograd F(2 x 2, 3 x 3)."""
    WINOGRAD_F4 = "winograd_f4"
    """Winograd F(4 x 4, 3 x 3)."""
    GENERIC = "generic"
    """The schedule that any compute gets."""


@dataclass(frozen=True, kw_only=True)
class ConvAttrs(Attrs):
    """Attributes of every convolution; the members of the family fix the number of axes."""

    strides: tuple[int, ...] = attr(doc="steps along the spatial axes")
    padding: tuple[int, ...] = attr(doc="zeros around the data")
    dilation: tuple[int, ...] = attr(doc="distance of the taps")
    groups: int = attr(1, "groups of channels convolved apart", check=lambda g: g > 0,
                       expected="1 or more")
    channels: int | None = attr(None, "output channels; None to read them off the kernel")
    kernel_size: tuple[int, ...] | None = attr(None, "sizes of the kernel")
    data_layout: str = attr(doc="layout of the data")
    kernel_layout: str = attr(doc="layout of the kernel")
    out_layout: str = attr("", "layout of the result; empty for that of the data")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")
    finite_kernel: bool = attr(False, "taps on padding may be left out: the kernel is known "
                                      "to hold neither infinity nor NaN, or padding stands for "
                                      "terms that are not there")
    algorithm: ConvAlgorithm | None = attr(None, "how it is computed, as the layout pass decided; "
                                                 "None before it")

    @property
    def spatial(self) -> str:
        """The letters of the spatial axes."""
        return SPATIAL_AXES[len(self.strides)]

    @property
    def result_layout(self) -> str:
        return self.out_layout or self.data_layout


def conv_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, kernel = types
    attrs = ctx.attrs_as(ConvAttrs)
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    ctx.expect_rank(0, data, data_layout.ndim)
    ctx.expect_rank(1, kernel, kernel_layout.ndim)
    ctx.expect_number(0, data)
    ctx.expect_factor(kernel, data, attrs.out_dtype)
    images = to_layout(ctx, data_layout, data_axes(attrs.spatial), data.shape, arg=0)
    taps = to_layout(ctx, kernel_layout, kernel_axes(attrs.spatial), kernel.shape, arg=1)
    expect_whole_axes(ctx, data_layout, attrs.spatial)
    _check_channels(ctx, attrs, images, taps)
    out = (images[0], taps[0], *_spatial_sizes(ctx, attrs, images, taps))
    wanted = layout_attr(ctx, "out_layout") if attrs.out_layout else data_layout
    shape = to_layout(ctx, data_axes(attrs.spatial), wanted, out, arg=1)
    ctx.output(TensorType(shape, output_dtype(attrs, data.dtype)))
    return True


def expect_whole_axes(ctx: RelationContext, layout: Layout, spatial: str) -> None:
    """Only the channels of the data may be split into blocks."""
    if any(layout.factor_of(letter) != 1 for letter in "N" + spatial):
        ctx.fail("only the channels of the data may be split", arg=0,
                 expected=f"a data_layout such as NC{spatial}16c", got=layout)


def _check_channels(ctx: RelationContext, attrs: ConvAttrs, data: Shape, kernel: Shape) -> None:
    """Input and output channels agree between data, kernel and attributes."""
    data_layout, kernel_layout = Layout.parse(attrs.data_layout), Layout.parse(attrs.kernel_layout)
    for axis, size, what in ((kernel_layout.index_of("O"), kernel[0], "output"),
                             (data_layout.index_of("C"), data[1], "input")):
        if not may_be_multiple(size, attrs.groups):
            ctx.fail(f"the {what} channels do not split into groups", arg=int(what == "output"),
                     axis=axis, expected=f"a number divisible by groups = {attrs.groups}",
                     got=size)
    expected = dim_floordiv(data[1], attrs.groups)
    ctx.expect_dim(1, kernel_layout.index_of("I"), kernel[1], expected,
                   "input channels do not match",
                   why=f" ({data[1]} input channels / groups = {attrs.groups})",
                   help=_layout_hint(attrs, data, kernel))
    if attrs.channels is not None:
        ctx.expect_dim(1, kernel_layout.index_of("O"), kernel[0], attrs.channels,
                       "output channels do not match", why=" (the attribute channels)")
    expect_kernel_size(ctx, attrs.kernel_size, kernel_layout, attrs.spatial, kernel[2:])


def expect_kernel_size(
    ctx: RelationContext, stated: Sequence[int] | None, layout: Layout, spatial: str, taps: Shape
) -> None:
    """Check the attribute ``kernel_size``, if given, against the sizes of the kernel."""
    if stated is None:
        return
    for letter, size, got in zip(spatial, stated, taps, strict=True):
        ctx.expect_dim(1, layout.index_of(letter), got, size,
                       "the kernel's size does not match", why=" (the attribute kernel_size)")


def _layout_hint(attrs: ConvAttrs, data: Shape, kernel: Shape) -> str:
    """The shape of the kernel, and another layout if the kernel would fit that."""
    if attrs.kernel_layout == "OI" + attrs.spatial and kernel[-2] == data[1]:
        sizes = ", ".join(map(str, kernel))
        return (f"the kernel layout is {attrs.kernel_layout}; pass "
                f'kernel_layout="{attrs.spatial}IO" if the kernel is ({sizes})')
    return f"the data layout is {attrs.data_layout}, the kernel layout {attrs.kernel_layout}"


def _spatial_sizes(
    ctx: RelationContext, attrs: ConvAttrs, data: Shape, kernel: Shape
) -> list[Dim]:
    layout = Layout.parse(attrs.data_layout)
    result: list[Dim] = []
    sides = side_padding(attrs.padding, len(attrs.spatial))
    for i, (letter, (before, after)) in enumerate(zip(attrs.spatial, sides, strict=True)):
        size, taps = data[2 + i], kernel[2 + i]
        if taps == 0:
            ctx.fail("the kernel is empty", arg=1, expected="a kernel of size 1 or more", got=0)
        span = window_span(taps, attrs.dilation[i])
        padded = dim_add(size, before + after)
        if isinstance(padded, int) and isinstance(span, int) and padded < span:
            ctx.fail("the kernel is larger than the padded data", arg=0,
                     axis=layout.index_of(letter), expected=f"a size of {span} or more",
                     got=f"{padded} (padding included)")
        result.append(window_count(padded, span, attrs.strides[i]))
    return result


def conv_compute(
    data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs, *, skipped: str = ""
) -> te.Tensor:
    """The convolution that ``attrs`` describe; ``skipped`` as in ``topi.nn.conv.conv``."""
    return topi_conv.conv(
        data, kernel, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
        groups=attrs.groups, data_layout=Layout.parse(attrs.data_layout),
        kernel_layout=Layout.parse(attrs.kernel_layout),
        out_layout=Layout.parse(attrs.result_layout), out_dtype=attrs.out_dtype or data.dtype,
        skipped=skipped,
    )


def define_conv(name: str, attrs_type: type[ConvAttrs], doc: str, cases: Sequence[Case]) -> Op:
    """One member of the family, with its reference and cases."""

    def run(data: te.Tensor, kernel: te.Tensor, attrs: ConvAttrs) -> te.Tensor:
        return conv_compute(data, kernel, attrs)

    def reference(data: np.ndarray, kernel: np.ndarray, **values: Any) -> np.ndarray:
        attrs = attrs_type(**values)
        spatial = attrs.spatial
        result = conv_reference(
            unblocked_images(data, Layout.parse(attrs.data_layout), spatial),
            transform_array(kernel, Layout.parse(attrs.kernel_layout), kernel_axes(spatial)),
            attrs.strides, full_padding(attrs.padding, len(spatial)), attrs.dilation, attrs.groups,
        )
        dtype = data.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
        return images_in(result, Layout.parse(attrs.result_layout), spatial).astype(dtype)

    run.__doc__ = doc
    made = define_op(name, attrs=attrs_type, relation=conv_relation,
                   pattern=OpPattern.OUT_FUSABLE, level=2, inputs=("data", "kernel"),
                   traits=replace(CONVOLUTION, mixed_precision=MixedPrecision.ALWAYS))(run)
    made.spec(reference, *cases)
    made.refer(gradient="weft.op.nn.conv_gradients:convolution_gradient")
    made.batching(_convolve_each)
    made.canonical_form(_with_explicit_sizes)
    return made


def _with_explicit_sizes(call: Call) -> Expr:
    """Padding on every side, and the channels and the size of the kernel, as attributes."""
    attrs: Any = call.attrs
    changes: dict[str, Any] = {"padding": full_padding(attrs.padding, len(attrs.spatial))}
    kernel, weight = Layout.parse(attrs.kernel_layout), known_type(call.args[1])
    if kernel.is_primal and isinstance(weight, TensorType):
        size = tuple(weight.shape[kernel.index_of(letter)] for letter in attrs.spatial)
        channels = weight.shape[kernel.index_of("O")]
        if all(isinstance(d, int) for d in (*size, channels)):
            changes.update(kernel_size=size, channels=channels)
    return with_changes(call, changes)


def with_changes(call: Call, changes: dict[str, Any]) -> Call:
    """``call`` with some attributes replaced; itself if they have these values already."""
    if all(getattr(call.attrs, name) == value for name, value in changes.items()):
        return call
    return call.replace(attrs=call.attrs.replace(**changes), checked_type=call.checked_type)


def _convolve_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """A shared kernel: the batch joins the images. A kernel for each example: a group for each."""
    attrs: Any = call.attrs
    if not is_batched[1]:
        return merging(layout="data_layout")(call, args, is_batched, size)
    plain = attrs.data_layout == attrs.result_layout == "NC" + attrs.spatial \
        and attrs.kernel_layout == "OI" + attrs.spatial
    if not plain or not isinstance(size, int):
        return None
    shape = known_shape(call.args[0], call)
    data = args[0]
    groups = attrs.groups
    if is_batched[0] or groups > 1:
        data = moved(repeated(data, call.args[0], is_batched=is_batched[0], size=size), 0, 1,
                     len(shape) + 1)
        data = op.reshape(data, newshape=(shape[0], size * shape[1], *shape[2:]), allowzero=True)
        groups *= size
    kernel = merged(args[1], call.args[1], size)
    result = with_attrs(call, (data, kernel), groups=groups, channels=None)
    images, channels, *rest = known_shape(call, call)
    apart = op.reshape(result, newshape=(images, size, channels, *rest), allowzero=True)
    return moved(apart, 1, 0, len(shape) + 1)


@dataclass(frozen=True, kw_only=True)
class Conv1DAttrs(ConvAttrs):
    strides: tuple[int] = steps_attr(1, "step along the width")
    padding: tuple[int, ...] = padding_attr(1, "zeros around the data")
    dilation: tuple[int] = steps_attr(1, "distance of the taps")
    kernel_size: tuple[int] | None = attr(None, "width of the kernel; None to read it off the "
                                          "kernel")
    data_layout: str = attr("NCW", "layout of the data")
    kernel_layout: str = attr("OIW", "layout of the kernel; I counts the channels of one group")


conv1d = define_conv(
    "nn.conv1d", Conv1DAttrs,
    """Cross-correlation of signals with a kernel, zeros around them.

    out[n, o, x] = sum over c, j of data[n, c, x * s + j * d - left] * kernel[o, c, j], where o
    sees the channels c of its group.
    """,
    (
        op_case((1, 3, 7), (4, 3, 3), padding=(1,)),
        op_case((2, 4, 9), (6, 2, 3), strides=(2,), padding=(0, 2), groups=2),
        op_case((1, 2, 11), (3, 2, 4), dilation=(3,), padding=(2,)),
        op_case((1, 5, 6), (5, 1, 2), groups=5, channels=5, kernel_size=(2,)),
        op_case((1, 6, 3), (2, 3, 4), data_layout="NWC", kernel_layout="WIO"),
        op_case((1, 1, 9, 8), (2, 1, 3, 8, 4), data_layout="NCW8c", kernel_layout="OIW8i4o",
                out_layout="NCW4c", padding=(1,), strides=(2,)),
        op_case((1, 2, 5, 4), (2, 1, 3, 1, 4), data_layout="NCW4c", kernel_layout="OIW1i4o",
                groups=8, padding=(1,)),
        op_case((1, 2, 5), (2, 2, 3), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 4), (2, 2, 3)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Conv2DAttrs(ConvAttrs):
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    padding: tuple[int, ...] = padding_attr(2, "zeros around the data")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    kernel_size: tuple[int, int] | None = attr(None, "height and width of the kernel; None to "
                                               "read them off the kernel")
    data_layout: str = attr("NCHW", "layout of the data")
    kernel_layout: str = attr("OIHW", "layout of the kernel; I counts the channels of one group")


conv2d = define_conv(
    "nn.conv2d", Conv2DAttrs,
    """Cross-correlation of images with a kernel, zeros around them.

    out[n, o, y, x] = sum over c, i, j of data[n, c, y * s0 + i * d0 - top, x * s1 + j * d1 - left]
    * kernel[o, c, i, j], where o sees the channels c of its group.
    """,
    (
        op_case((1, 3, 5, 6), (4, 3, 3, 3), padding=(1, 1)),
        op_case((2, 4, 7, 5), (6, 4, 3, 2), strides=(2, 1), padding=(0, 1, 2, 0)),
        op_case((1, 2, 8, 8), (3, 2, 3, 3), dilation=(2, 3), padding=(2,)),
        op_case((1, 6, 4, 4), (4, 3, 1, 1), groups=2, channels=4, kernel_size=(1, 1)),
        op_case((1, 3, 5, 5), (3, 1, 3, 3), groups=3, padding=(1, 1)),
        op_case((1, 2, 4, 4), (6, 1, 3, 3), groups=2),
        op_case((1, 5, 5, 3), (3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO"),
        op_case((1, 1, 4, 5, 8), (2, 1, 3, 3, 8, 4), data_layout="NCHW8c", kernel_layout="OIHW8i4o",
                out_layout="NCHW4c", padding=(1, 1)),
        op_case((1, 3, 5, 5), (2, 1, 3, 3, 3, 4), kernel_layout="OIHW3i4o", out_layout="NCHW4c",
                strides=(2, 2)),
        op_case((1, 2, 5, 5, 4), (2, 1, 3, 3, 1, 4), data_layout="NCHW4c", kernel_layout="OIHW1i4o",
                groups=8, padding=(1, 1)),
        op_case((1, 2, 3, 3, 4), (2, 1, 1, 1, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o",
                groups=2),
        op_case((1, 2, 3, 3, 4), (2, 1, 2, 2, 2, 4), data_layout="NCHW4c", kernel_layout="OIHW2i4o",
                groups=4),
        op_case((1, 2, 4, 4), (2, 2, 3, 3), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 4, 4), (2, 2, 3, 3)),
    ),
)
conv2d.refer(integer_form="weft.op.qnn.integer_forms:conv2d")


@dataclass(frozen=True, kw_only=True)
class Conv3DAttrs(ConvAttrs):
    strides: tuple[int, int, int] = steps_attr(3, "steps along depth, height and width")
    padding: tuple[int, ...] = padding_attr(3, "zeros around the data")
    dilation: tuple[int, int, int] = steps_attr(3, "distance of the taps")
    kernel_size: tuple[int, int, int] | None = attr(None, "depth, height and width of the "
                                                    "kernel; None to read them off the kernel")
    data_layout: str = attr("NCDHW", "layout of the data")
    kernel_layout: str = attr("OIDHW", "layout of the kernel; I counts the channels of one group")


conv3d = define_conv(
    "nn.conv3d", Conv3DAttrs,
    """Cross-correlation of volumes with a kernel, zeros around them.

    out[n, o, z, y, x] = sum over c, k, i, j of data[n, c, z * s0 + k * d0 - front,
    y * s1 + i * d1 - top, x * s2 + j * d2 - left] * kernel[o, c, k, i, j], where o sees the
    channels c of its group.
    """,
    (
        op_case((1, 2, 4, 5, 4), (3, 2, 3, 3, 3), padding=(1,)),
        op_case((2, 4, 3, 4, 5), (2, 2, 2, 1, 3), strides=(1, 2, 2), padding=(1, 0, 1, 0, 0, 2),
                groups=2),
        op_case((1, 2, 5, 5, 5), (2, 2, 2, 2, 2), dilation=(2, 1, 3)),
        op_case((1, 3, 3, 3, 3), (3, 1, 2, 2, 2), groups=3, padding=(0, 1, 1)),
        op_case((1, 3, 3, 4, 2), (2, 2, 2, 2, 3), data_layout="NDHWC", kernel_layout="DHWIO"),
        op_case((1, 1, 3, 4, 5, 4), (2, 1, 3, 3, 3, 4, 4), data_layout="NCDHW4c",
                kernel_layout="OIDHW4i4o", padding=(1, 1, 1)),
        op_case((1, 1, 2, 3, 3), (2, 1, 2, 2, 2), dtypes="int32", low=-5, high=5),
        op_case((0, 2, 3, 3, 3), (2, 2, 2, 2, 2)),
    ),
)
