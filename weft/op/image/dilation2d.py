"""Grey-scale dilation of images."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, TensorType, Tuple, attr, const, dim_add, infer_expr
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import (
    attrs_of,
    fixed_sizes,
    known_shape,
    scalar,
    spread_along,
    tensor_type,
    to_order,
)
from weft.op.nn.conv import padding_attr, steps_attr
from weft.op.nn.conv_reference import images_in, pad_spatial, unblocked_images, windows
from weft.op.relations import (
    layout_attr,
)
from weft.support.dataclass import dataclass
from weft.topi.image.dilation2d import dilation2d as topi_dilation2d
from weft.topi.layout import Layout, transform_array
from weft.topi.nn.conv import full_padding, side_padding
from weft.topi.nn.window import window_count, window_span


@dataclass(frozen=True, kw_only=True)
class Dilation2DAttrs(Attrs):
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    padding: tuple[int, ...] = padding_attr(2, "padding, whose elements never win")
    dilations: tuple[int, int] = steps_attr(2, "distance between neighbouring taps")
    data_layout: str = attr("NCHW", "layout of the data and the result")
    kernel_layout: str = attr("IHW", "layout of the structuring element")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, weight = types
    attrs = ctx.attrs_as(Dilation2DAttrs)
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    for name, layout, axes in (("data_layout", data_layout, "CHNW"),
                               ("kernel_layout", kernel_layout, "HIW")):
        if not layout.is_primal or "".join(sorted(layout.primal_axes)) != axes:
            ctx.fail(f"{name} does not fit", expected=f"the axes {', '.join(axes)}", got=layout)
    ctx.expect_rank(0, data, 4)
    ctx.expect_rank(1, weight, 3)
    ctx.expect_float(0, data)
    ctx.expect_same_dtype(1, weight, data.dtype)
    ctx.expect_dim(1, kernel_layout.index_of("I"), weight.shape[kernel_layout.index_of("I")],
                   data.shape[data_layout.index_of("C")], "the channels do not match")
    shape = list(data.shape)
    for i, (letter, (before, after)) in enumerate(zip("HW", side_padding(attrs.padding, 2),
                                                      strict=True)):
        axis = data_layout.index_of(letter)
        padded = dim_add(shape[axis], before + after)
        span = window_span(weight.shape[kernel_layout.index_of(letter)], attrs.dilations[i])
        if isinstance(padded, int) and isinstance(span, int) and not 0 < span <= padded:
            ctx.fail("the structuring element does not fit the padded data", arg=1,
                     expected=f"a span from 1 to {padded}", got=span)
        shape[axis] = window_count(padded, span, attrs.strides[i])
    ctx.output(TensorType(tuple(shape), data.dtype))
    return True


@define_op("image.dilation2d", attrs=Dilation2DAttrs, relation=_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def dilation2d(data: te.Tensor, weight: te.Tensor, attrs: Dilation2DAttrs) -> te.Tensor:
    """The maximum over a window of each channel of the data plus its structuring element."""
    return topi_dilation2d(
        data, weight, strides=attrs.strides, padding=attrs.padding, dilations=attrs.dilations,
        data_layout=Layout.parse(attrs.data_layout),
        kernel_layout=Layout.parse(attrs.kernel_layout),
    )


@dilation2d.gradient
def _gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The first tap whose sum is the maximum receives the gradient of its window."""
    attrs = attrs_of(call, Dilation2DAttrs)
    data, weight = call.args
    x, best, grad = (to_order(t, attrs.data_layout, "NCHW") for t in (data, y, dy))
    taps = to_order(weight, attrs.kernel_layout, "IHW")
    sizes, counts = (fixed_sizes(known_shape(t, call)[2:], call) for t in (x, best))
    rows, columns = fixed_sizes(known_shape(taps, call)[1:], call)
    sides = side_padding(attrs.padding, 2)
    lowest = const(-np.inf, tensor_type(x).dtype)
    padded = _typed(op.nn.pad(x, lowest, pad_width=((0, 0), (0, 0), *sides)))
    whole = tuple(before + size + after
                  for size, (before, after) in zip(sizes, sides, strict=True))
    left = _typed(op.equal(best, best))  # windows with a pending gradient; none for NaN
    total: Expr | None = None
    of_taps: list[Expr] = []
    for i, j in itertools.product(range(rows), range(columns)):
        first = (i * attrs.dilations[0], j * attrs.dilations[1])
        end = tuple(f + (c - 1) * s + 1
                    for f, c, s in zip(first, counts, attrs.strides, strict=True))
        read = op.strided_slice(padded, begin=first, end=end, strides=tuple(attrs.strides),
                                axes=(2, 3))
        tap = op.expand_dims(op.strided_slice(taps, begin=(i, j), end=(i + 1, j + 1),
                                              axes=(1, 2)), axis=0)
        won = op.logical_and(left, op.equal(op.add(read, tap), best))
        share = _typed(op.where(won, grad, scalar(0.0, grad)))
        left = _typed(op.logical_and(left, op.logical_not(won)))
        of_taps.append(op.sum(share, axis=(0, 2, 3)))
        for axis in (0, 1):
            share = spread_along(share, 2 + axis, first[axis], attrs.strides[axis], whole[axis],
                                 counts[axis])
        total = share if total is None else op.add(total, share)
    cut = op.strided_slice(total, begin=tuple(before for before, _ in sides),
                           end=tuple(size + before
                                     for size, (before, _) in zip(sizes, sides, strict=True)),
                           axes=(2, 3))
    stacked = op.reshape(op.stack(Tuple(tuple(of_taps)), axis=1),
                         newshape=known_shape(taps, call), allowzero=True)
    return [to_order(_typed(cut), "NCHW", attrs.data_layout),
            to_order(_typed(stacked), "IHW", attrs.kernel_layout)]


def _typed(x: Expr) -> Expr:
    return infer_expr(x, trust=True)


def _reference(data: np.ndarray, weight: np.ndarray, **values: Any) -> np.ndarray:
    attrs = Dilation2DAttrs(**values)
    layout = Layout.parse(attrs.data_layout)
    taps = transform_array(weight, Layout.parse(attrs.kernel_layout), Layout.parse("IHW"))
    images = unblocked_images(data, layout, "HW")
    padded = pad_spatial(images, full_padding(attrs.padding, 2), -np.inf)
    view = windows(padded, taps.shape[1:], attrs.strides, attrs.dilations)
    found = (view + taps[None, :, None, None]).max(axis=(4, 5))
    return images_in(found.astype(data.dtype), layout, "HW")


dilation2d.spec(
    _reference,
    op_case((1, 2, 5, 6), (2, 3, 2), padding=(1, 0)),
    op_case((2, 5, 5, 3), (2, 2, 3), data_layout="NHWC", kernel_layout="HWI", strides=(2, 1)),
    op_case((1, 1, 6, 6), (1, 2, 2), dilations=(2, 3), padding=(0, 1, 1, 0)),
)

dilation2d.batching(merging(layout="data_layout"))
