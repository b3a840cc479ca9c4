"""Pooling over windows of signals, images and volumes: the largest element, or the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import te
from weft.ir import (
    AnyDim,
    Attrs,
    Call,
    Case,
    Dim,
    Expr,
    Op,
    OpPattern,
    RelationContext,
    Shape,
    TensorType,
    attr,
    define_op,
    dim_min,
    op_case,
)
from weft.ir.traits import CONTINUOUS, SENSITIVE, Family, Homogeneity, linear
from weft.op.batching import merging
from weft.op.layout_inference import image_layout
from weft.op.nn.conv import padding_attr, positive, steps_attr, with_changes
from weft.op.nn.conv_reference import images_in, pad_spatial, unblocked_images, windows
from weft.op.relations import (
    checked,
    expect_float,
    expect_number,
    layout_attr,
)
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool
from weft.topi.nn.conv import full_padding
from weft.topi.nn.pool import AxisWindow, PoolWindow, axis_windows
from weft.topi.nn.window import window_count, window_count_up

PADDING_DOC = "padding, whose elements never win or count"


def size_attr(axes: int, doc: str) -> Any:
    word = {1: "a number", 2: "two numbers", 3: "three numbers"}[axes]
    return attr(doc=doc, check=positive, expected=f"{word} >= 1")


@dataclass(frozen=True, kw_only=True)
class PoolAttrs(Attrs):
    """Attributes of pooling; the members of the family fix the number of axes."""

    pool_size: tuple[int, ...] = attr(doc="sizes of the window")
    strides: tuple[int, ...] = attr(doc="steps along the spatial axes")
    dilation: tuple[int, ...] = attr(doc="distance of the taps")
    padding: tuple[int, ...] = attr(doc=PADDING_DOC)
    layout: str = attr(doc="layout of the data and the result")
    ceil_mode: bool = attr(False, "keep an incomplete last window")

    @property
    def window(self) -> PoolWindow:
        return PoolWindow(self.pool_size, self.strides, self.dilation, self.padding,
                          self.ceil_mode)


def count_include_pad_attr() -> Any:
    return attr(False, "divide by the taps in data and padding, not only in the data")


def _window_count(axis: AxisWindow, size: Dim) -> Dim:
    """``AxisWindow.count`` for the dimension of a type."""
    padded = size + (axis.before + axis.after)
    if not axis.ceil_mode:
        return window_count(padded, axis.span, axis.stride)
    # As in PyTorch, the last window must begin in the data or in the padding before it.
    windows_up = window_count_up(padded, axis.span, axis.stride)
    inside = window_count(size + axis.before, 1, axis.stride)
    return dim_min(windows_up, inside)


def pool_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(PoolAttrs)
    layout = layout_of_images(ctx, source, attrs.window.spatial)
    ctx.output(TensorType(expect_windows(ctx, attrs, layout, source), source.dtype))
    return True


def expect_windows(
    ctx: RelationContext, attrs: PoolAttrs, layout: Layout, source: TensorType, *, arg: int = 0
) -> Shape:
    """The shape with the number of windows along the spatial axes; fails if none fits."""
    window = attrs.window
    shape = list(source.shape)
    for letter, axis in zip(window.spatial, axis_windows(window), strict=True):
        position = layout.index_of(letter)
        size = shape[position]
        # Otherwise a window could lie in the padding alone, and have no maximum.
        if max(axis.before, axis.after) >= axis.span:
            ctx.fail("the padding is not smaller than the window", arg=arg, axis=position,
                     expected=f"padding below {axis.span}", got=max(axis.before, axis.after))
        count = _window_count(axis, size)
        if isinstance(size, int) and (size == 0 or not isinstance(count, int) or count < 1):
            ctx.fail("the window is larger than the padded data", arg=arg, axis=position,
                     expected=f"a size of {axis.span} or more",
                     got=size + axis.before + axis.after)
        shape[position] = count
    return tuple(shape)


def layout_of_images(
    ctx: RelationContext, source: TensorType, spatial: str, *, arg: int = 0
) -> Layout:
    """The attribute ``layout``, which must have the spatial axes unsplit."""
    layout = layout_attr(ctx, "layout")
    if not all(layout.has(a) and layout.factor_of(a) == 1 for a in spatial):
        ctx.fail(f"the layout needs the unsplit axes {' and '.join(spatial)}",
                 expected=f"such as NC{spatial}", got=layout)
    ctx.expect_rank(arg, source, layout.ndim)
    for letter in layout.primal_axes:
        position = layout.block_index_of(letter)
        size = None if position is None else source.shape[position]
        if size is not None and size != layout.factor_of(letter) and not isinstance(size, AnyDim):
            ctx.fail(f"the block is not that of layout {layout}", arg=arg, axis=position,
                     expected=layout.factor_of(letter), got=size)
    return layout


def _windows_of(x: np.ndarray, window: PoolWindow, fill: float) -> np.ndarray:
    """The windows (N, C, outputs…, taps…), padded with ``fill``."""
    axes = axis_windows(window)
    counts = [int(_window_count(a, s)) for a, s in  # pyrefly: ignore - sizes are integers
              zip(axes, x.shape[2:], strict=True)]
    after = [max(a.after, (n - 1) * a.stride + a.span - s - a.before)
             for a, n, s in zip(axes, counts, x.shape[2:], strict=True)]
    padded = pad_spatial(x, (*(a.before for a in axes), *after), fill)
    found = windows(padded, window.size, window.strides, window.dilation)
    return found[(slice(None), slice(None), *map(slice, counts))]


def _tap_axes(window: PoolWindow) -> tuple[int, ...]:
    return tuple(range(2 + len(window.size), 2 + 2 * len(window.size)))


def max_reference(x: np.ndarray, attrs: PoolAttrs) -> np.ndarray:
    layout, window = Layout.parse(attrs.layout), attrs.window
    fill = np.iinfo(x.dtype).min if np.issubdtype(x.dtype, np.integer) else -np.inf
    found = _windows_of(unblocked_images(x, layout, window.spatial), window, fill)
    return images_in(found.max(axis=_tap_axes(window)), layout, window.spatial)


def avg_reference(x: np.ndarray, attrs: Any) -> np.ndarray:
    layout, window = Layout.parse(attrs.layout), attrs.window
    plain = unblocked_images(x, layout, window.spatial).astype(np.float64)
    taps = _tap_axes(window)
    total = _windows_of(plain, window, 0.0).sum(axis=taps)
    counted = np.ones((1, 1, *plain.shape[2:]))
    if attrs.count_include_pad:
        axes = axis_windows(window)
        counted = pad_spatial(counted, (*(a.before for a in axes), *(a.after for a in axes)), 1.0)
        view = _whole_windows(counted, attrs.replace(padding=(0,)).window, total.shape[2:])
    else:
        view = _windows_of(counted, window, 0.0)
    return images_in(total / view.sum(axis=taps), layout, window.spatial).astype(x.dtype)


def _whole_windows(x: np.ndarray, window: PoolWindow, counts: Sequence[int]) -> np.ndarray:
    """``counts`` windows along each axis of ``x``, padded with zeros at the end."""
    axes = axis_windows(window)
    after = [max(0, (n - 1) * a.stride + a.span - s)
             for a, n, s in zip(axes, counts, x.shape[2:], strict=True)]
    padded = pad_spatial(x, (*(0,) * len(axes), *after))
    view = windows(padded, window.size, window.strides, window.dilation)
    return view[(slice(None), slice(None), *map(slice, counts))]


def _with_explicit_padding(call: Call) -> Expr:
    window: PoolWindow = call.attrs.window  # type: ignore[attr-defined]
    return with_changes(call, {"padding": full_padding(window.padding, len(window.size))})


def define_max_pool(name: str, attrs_type: type[PoolAttrs], cases: Sequence[Case]) -> Op:
    def run(x: te.Tensor, attrs: PoolAttrs) -> te.Tensor:
        return topi_pool.max_pool(x, attrs.window, Layout.parse(attrs.layout))

    run.__doc__ = "The largest element of each window."
    op = define_op(name, attrs=attrs_type, relation=checked(expect_number, pool_relation),
                   pattern=OpPattern.OUT_FUSABLE, level=2, inputs=("x",),
                   traits=replace(CONTINUOUS, homogeneity=Homogeneity.POSITIVE,
                                  keeps_scale=True, family=Family.MAX_POOL))(run)
    op.layout(image_layout)
    op.batching(merging(layout="layout"))
    op.canonical_form(_with_explicit_padding)
    op.refer(permuted="weft.op.permuted:image")
    op.refer(gradient="weft.op.nn.pool_gradients:max_pool_gradient")
    op.spec(lambda x, **values: max_reference(x, attrs_type(**values)), *cases)
    return op


def define_avg_pool(name: str, attrs_type: type[PoolAttrs], cases: Sequence[Case]) -> Op:
    """``attrs_type`` also has ``count_include_pad``."""

    def run(x: te.Tensor, attrs: Any) -> te.Tensor:
        return topi_pool.avg_pool(x, attrs.window, Layout.parse(attrs.layout),
                                  count_include_pad=attrs.count_include_pad)

    run.__doc__ = "The mean of each window."
    op = define_op(name, attrs=attrs_type, relation=checked(expect_float, pool_relation),
                   pattern=OpPattern.OUT_FUSABLE, level=2, inputs=("x",),
                   traits=linear(replace(SENSITIVE, homogeneity=Homogeneity.ANY_SCALE,
                                         family=Family.AVG_POOL)))(run)
    op.layout(image_layout)
    op.batching(merging(layout="layout"))
    op.canonical_form(_with_explicit_padding)
    op.refer(permuted="weft.op.permuted:image")
    op.refer(gradient="weft.op.nn.pool_gradients:avg_pool_gradient")
    op.spec(lambda x, **values: avg_reference(x, attrs_type(**values)), *cases)
    return op


@dataclass(frozen=True, kw_only=True)
class MaxPool1DAttrs(PoolAttrs):
    pool_size: tuple[int] = size_attr(1, "width of the window")
    strides: tuple[int] = steps_attr(1, "step along the width")
    dilation: tuple[int] = steps_attr(1, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(1, PADDING_DOC)
    layout: str = attr("NCW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool1DAttrs(MaxPool1DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_SIGNALS = (
    op_case((1, 2, 7), pool_size=(3,), strides=(2,)),
    op_case((2, 3, 8), pool_size=(3,), strides=(2,), padding=(1, 0), ceil_mode=True),
    op_case((1, 1, 9), pool_size=(2,), dilation=(3,), padding=(1,)),
    op_case((1, 2, 5, 4), pool_size=(2,), layout="NCW4c"),
    op_case((0, 2, 5), pool_size=(2,)),
)

max_pool1d = define_max_pool("nn.max_pool1d", MaxPool1DAttrs, (
    *_SIGNALS, op_case((1, 2, 4), pool_size=(2,), padding=(1,), dtypes="int32", low=-9, high=9),
))
avg_pool1d = define_avg_pool("nn.avg_pool1d", AvgPool1DAttrs, (
    *_SIGNALS, op_case((1, 2, 6), pool_size=(3,), padding=(1,), count_include_pad=True),
))


@dataclass(frozen=True, kw_only=True)
class MaxPool2DAttrs(PoolAttrs):
    pool_size: tuple[int, int] = size_attr(2, "height and width of the window")
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(2, PADDING_DOC)
    layout: str = attr("NCHW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool2DAttrs(MaxPool2DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_IMAGES = (
    op_case((1, 2, 6, 7), pool_size=(2, 3), strides=(2, 2)),
    op_case((2, 2, 7, 7), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    op_case((1, 2, 7, 6), pool_size=(3, 3), strides=(2, 2), padding=(0, 1, 1, 0), ceil_mode=True),
    op_case((1, 1, 9, 8), pool_size=(2, 3), dilation=(2, 2), padding=(1, 2)),
    op_case((1, 2, 5, 5, 4), pool_size=(3, 3), strides=(2, 2), layout="NCHW4c", padding=(1, 1)),
    op_case((1, 5, 6, 3), pool_size=(2, 2), strides=(3, 2), layout="NHWC", ceil_mode=True),
)

max_pool2d = define_max_pool("nn.max_pool2d", MaxPool2DAttrs, (
    *_IMAGES,
    op_case((1, 2, 4, 4), pool_size=(2, 2), padding=(1, 1), dtypes="int32", low=-9, high=9),
))
avg_pool2d = define_avg_pool("nn.avg_pool2d", AvgPool2DAttrs, (
    *_IMAGES,
    op_case((1, 2, 6, 7), pool_size=(3, 3), padding=(1, 1), count_include_pad=True),
    op_case((1, 1, 6, 6), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True,
            count_include_pad=True),
    op_case((1, 1, 8, 7), pool_size=(2, 2), strides=(3, 3), dilation=(2, 2), padding=(1, 1),
            ceil_mode=True, count_include_pad=True),
))


@dataclass(frozen=True, kw_only=True)
class MaxPool3DAttrs(PoolAttrs):
    pool_size: tuple[int, int, int] = size_attr(3, "depth, height and width of the window")
    strides: tuple[int, int, int] = steps_attr(3, "steps along depth, height and width")
    dilation: tuple[int, int, int] = steps_attr(3, "distance of the taps")
    padding: tuple[int, ...] = padding_attr(3, PADDING_DOC)
    layout: str = attr("NCDHW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class AvgPool3DAttrs(MaxPool3DAttrs):
    count_include_pad: bool = count_include_pad_attr()


_VOLUMES = (
    op_case((1, 2, 4, 5, 6), pool_size=(2, 3, 2), strides=(2, 1, 2)),
    op_case((1, 1, 5, 4, 5), pool_size=(3, 3, 3), strides=(2, 2, 2), padding=(1, 1, 1),
            ceil_mode=True),
    op_case((1, 1, 4, 4, 5), pool_size=(2, 2, 2), dilation=(1, 2, 3), padding=(0, 1, 1, 1, 0, 0)),
    op_case((1, 2, 2, 3, 3, 4), pool_size=(2, 2, 2), layout="NCDHW4c"),
)

max_pool3d = define_max_pool("nn.max_pool3d", MaxPool3DAttrs, (
    *_VOLUMES,
    op_case((1, 1, 3, 3, 3), pool_size=(2, 2, 2), padding=(1,), dtypes="int32", low=-9, high=9),
))
avg_pool3d = define_avg_pool("nn.avg_pool3d", AvgPool3DAttrs, (
    *_VOLUMES, op_case((1, 1, 3, 4, 4), pool_size=(3, 3, 3), padding=(1,), count_include_pad=True),
))
