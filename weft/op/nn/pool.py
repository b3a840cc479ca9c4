"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, attr
from weft.ir.op import Op, OpPattern, case, define_op
from weft.ir.shape import ANY, Dim, dim_add, dim_floordiv
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.op.layout_inference import image_layout
from weft.op.nn.conv2d import PADDING_EXPECTED, is_padding, positive
from weft.op.nn.conv_reference import from_nchw, in_nchw, pad_spatial, windows
from weft.op.relations import attrs_as, expect_float, expect_number, expect_rank, layout_attr
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool
from weft.topi.nn.pool import AxisWindow, PoolWindow, axis_windows


@dataclass(frozen=True, kw_only=True)
class MaxPool2DAttrs(Attrs):
    pool_size: tuple[int, int] = attr(doc="height and width of the window", check=positive,
                                      expected="two numbers >= 1")
    strides: tuple[int, int] = attr((1, 1), "steps along height and width", check=positive,
                                    expected="two numbers >= 1")
    dilation: tuple[int, int] = attr((1, 1), "distance of the taps", check=positive,
                                     expected="two numbers >= 1")
    padding: tuple[int, ...] = attr((0, 0), "elements around the data that never win or count: "
                                    + PADDING_EXPECTED, check=is_padding,
                                    expected=PADDING_EXPECTED)
    layout: str = attr("NCHW", "layout of the data and the result")
    ceil_mode: bool = attr(False, "keep a last window that is not whole")

    @property
    def window(self) -> PoolWindow:
        return PoolWindow(self.pool_size, self.strides, self.dilation, self.padding,
                          self.ceil_mode)


@dataclass(frozen=True, kw_only=True)
class AvgPool2DAttrs(MaxPool2DAttrs):
    count_include_pad: bool = attr(False, "divide by the taps in data and padding, not in the "
                                   "data alone")


def _window_count(axis: AxisWindow, size: Dim) -> Dim:
    """``AxisWindow.count`` for the dimension of a type."""
    room = dim_add(size, axis.before + axis.after - axis.span)
    if not axis.ceil_mode:
        return dim_add(dim_floordiv(room, axis.stride), 1)
    windows_up = dim_add(dim_floordiv(dim_add(room, axis.stride - 1), axis.stride), 1)
    inside = dim_add(dim_floordiv(dim_add(size, axis.before - 1), axis.stride), 1)
    if isinstance(windows_up, int) and isinstance(inside, int):
        return min(windows_up, inside)
    return windows_up if windows_up == inside else ANY


def _pool_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = attrs_as(ctx, MaxPool2DAttrs)
    layout = _image_layout(ctx, source)
    (expect_float if isinstance(attrs, AvgPool2DAttrs) else expect_number)(ctx, 0, source)
    shape = list(source.shape)
    for letter, axis in zip("HW", axis_windows(attrs.window), strict=True):
        position = layout.index_of(letter)
        size = shape[position]
        if max(axis.before, axis.after) >= axis.span:
            ctx.fail("the padding is as large as the window", arg=0, axis=position,
                     expected=f"padding below {axis.span}", got=max(axis.before, axis.after))
        count = _window_count(axis, size)
        if isinstance(size, int) and (size == 0 or not isinstance(count, int) or count < 1):
            ctx.fail("the window is larger than the padded data", arg=0, axis=position,
                     expected=f"a size of {axis.span} or more",
                     got=size + axis.before + axis.after)
        shape[position] = count
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _image_layout(ctx: RelationContext, source: TensorType) -> Layout:
    layout = layout_attr(ctx, "layout")
    if not (layout.has("H") and layout.has("W")) or layout.factor_of("H") * layout.factor_of(
            "W") != 1:
        ctx.fail("the layout needs axes H and W that are not split", expected="such as NCHW",
                 got=layout)
    expect_rank(ctx, 0, source, layout.ndim)
    return layout


def _windows_of(x: np.ndarray, attrs: MaxPool2DAttrs, fill: float) -> np.ndarray:
    """The windows (N, C, oh, ow, kh, kw), elements beyond the padding included as ``fill``."""
    rows, columns = axis_windows(attrs.window)
    counts = [int(_window_count(a, s)) for a, s in  # pyrefly: ignore - sizes are integers
              zip((rows, columns), x.shape[2:], strict=True)]
    after = [max(a.after, (n - 1) * a.stride + a.span - s - a.before)
             for a, n, s in zip((rows, columns), counts, x.shape[2:], strict=True)]
    padded = pad_spatial(x, (rows.before, columns.before, *after), fill)
    found = windows(padded, attrs.pool_size, attrs.strides, attrs.dilation)
    return found[:, :, :counts[0], :counts[1]]


def _max_reference(x: np.ndarray, **values: Any) -> np.ndarray:
    attrs = MaxPool2DAttrs(**values)
    layout = Layout.parse(attrs.layout)
    fill = np.iinfo(x.dtype).min if np.issubdtype(x.dtype, np.integer) else -np.inf
    found = _windows_of(in_nchw(x, layout), attrs, fill).max(axis=(4, 5))
    return from_nchw(found, layout)


def _avg_reference(x: np.ndarray, **values: Any) -> np.ndarray:
    attrs = AvgPool2DAttrs(**values)
    layout = Layout.parse(attrs.layout)
    plain = in_nchw(x, layout).astype(np.float64)
    total = _windows_of(plain, attrs, 0.0).sum(axis=(4, 5))
    counted = np.ones((1, 1, *plain.shape[2:]))
    if attrs.count_include_pad:
        rows, columns = axis_windows(attrs.window)
        counted = pad_spatial(counted, (rows.before, columns.before, rows.after, columns.after),
                              1.0)
        plain_attrs = attrs.replace(padding=(0, 0))
        view = _whole_windows(counted, plain_attrs, total.shape[2:])
    else:
        view = _windows_of(counted, attrs, 0.0)
    return from_nchw(total / view.sum(axis=(4, 5)), layout).astype(x.dtype)


def _whole_windows(x: np.ndarray, attrs: MaxPool2DAttrs, counts: Sequence[int]) -> np.ndarray:
    """``counts`` windows along each axis of ``x``, zeros beyond its end."""
    rows, columns = axis_windows(attrs.window)
    after = [max(0, (n - 1) * a.stride + a.span - s)
             for a, n, s in zip((rows, columns), counts, x.shape[2:], strict=True)]
    view = windows(pad_spatial(x, (0, 0, *after)), attrs.pool_size, attrs.strides, attrs.dilation)
    return view[:, :, :counts[0], :counts[1]]


_POOL_CASES = (
    case((1, 2, 6, 7), pool_size=(2, 3), strides=(2, 2)),
    case((2, 2, 7, 7), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    case((1, 2, 7, 6), pool_size=(3, 3), strides=(2, 2), padding=(0, 1, 1, 0), ceil_mode=True),
    case((1, 1, 9, 8), pool_size=(2, 3), dilation=(2, 2), padding=(1, 2)),
    case((1, 2, 5, 5, 4), pool_size=(3, 3), strides=(2, 2), layout="NCHW4c", padding=(1, 1)),
    case((1, 5, 6, 3), pool_size=(2, 2), strides=(3, 2), layout="NHWC", ceil_mode=True),
)


@define_op("nn.max_pool2d", attrs=MaxPool2DAttrs, relation=_pool_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def max_pool2d(x: te.Tensor, attrs: MaxPool2DAttrs) -> te.Tensor:
    """The largest element of each window."""
    return topi_pool.max_pool2d(x, attrs.window, Layout.parse(attrs.layout))


max_pool2d.layout(image_layout)
max_pool2d.spec(_max_reference, *_POOL_CASES,
                case((1, 2, 4, 4), pool_size=(2, 2), padding=(1, 1), dtypes="int32", low=-9,
                     high=9))


@define_op("nn.avg_pool2d", attrs=AvgPool2DAttrs, relation=_pool_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def avg_pool2d(x: te.Tensor, attrs: AvgPool2DAttrs) -> te.Tensor:
    """The mean of each window."""
    return topi_pool.avg_pool2d(x, attrs.window, Layout.parse(attrs.layout),
                                count_include_pad=attrs.count_include_pad)


avg_pool2d.layout(image_layout)
avg_pool2d.spec(
    _avg_reference, *_POOL_CASES,
    case((1, 2, 6, 7), pool_size=(3, 3), padding=(1, 1), count_include_pad=True),
    case((1, 1, 6, 6), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), ceil_mode=True,
         count_include_pad=True),
    case((1, 1, 8, 7), pool_size=(2, 2), strides=(3, 3), dilation=(2, 2), padding=(1, 1),
         ceil_mode=True, count_include_pad=True),
)


@dataclass(frozen=True, kw_only=True)
class GlobalPool2DAttrs(Attrs):
    layout: str = attr("NCHW", "layout of the data and the result")


def _global_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    layout = _image_layout(ctx, source)
    spatial = [layout.index_of("H"), layout.index_of("W")]
    for axis in spatial:
        if source.shape[axis] == 0:
            ctx.fail("there is nothing to pool", arg=0, axis=axis,
                     expected="a size of 1 or more", got=0)
    shape = tuple(1 if i in spatial else d for i, d in enumerate(source.shape))
    ctx.output(TensorType(shape, source.dtype))
    return True


def _avg_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is not None:
        expect_float(ctx, 0, source)
    return _global_relation(ctx)


def _global_pool(
    name: str, compute: Callable[[te.Tensor, Layout], te.Tensor], reduce: Callable[..., Any],
    relation: Callable[[RelationContext], bool], doc: str,
) -> Op:
    def run(x: te.Tensor, attrs: GlobalPool2DAttrs) -> te.Tensor:
        return compute(x, Layout.parse(attrs.layout))

    def reference(x: np.ndarray, layout: str = "NCHW") -> np.ndarray:
        parsed = Layout.parse(layout)
        axes = (parsed.index_of("H"), parsed.index_of("W"))
        return np.asarray(reduce(x, axis=axes, keepdims=True)).astype(x.dtype)

    run.__doc__ = doc
    op = define_op(name, attrs=GlobalPool2DAttrs, relation=relation,
                   pattern=OpPattern.OUT_FUSABLE, level=2, inputs=("x",))(run)
    op.layout(image_layout)
    op.spec(reference, case((2, 3, 4, 5)), case((1, 2, 3, 3, 4), layout="NCHW4c"),
            case((1, 3, 4, 2), layout="NHWC"))
    return op


global_avg_pool2d = _global_pool("nn.global_avg_pool2d", topi_pool.global_avg_pool2d, np.mean,
                                 _avg_relation, "The mean of each channel of each image.")
global_max_pool2d = _global_pool("nn.global_max_pool2d", topi_pool.global_max_pool2d, np.max,
                                 _global_relation,
                                 "The largest element of each channel of each image.")
