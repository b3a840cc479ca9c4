"""Gradients of 2-D pooling, as operators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Call, Expr, OpPattern, TensorType, define_op, infer_expr, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import applied_to_first_tangent, attrs_of, to_order, typed_zeros
from weft.op.nn.conv_reference import images_in, unblocked_images
from weft.op.nn.pool import (
    AvgPool2DAttrs,
    MaxPool2DAttrs,
    PoolAttrs,
    expect_windows,
    layout_of_images,
)
from weft.op.nn.pool_indices import elements_at
from weft.topi.layout import Layout
from weft.topi.nn import pool_grad as topi_pool
from weft.topi.nn.pool import PoolWindow, axis_windows


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    grad, data = types
    attrs = ctx.attrs_as(PoolAttrs)
    ctx.expect_float(1, data)
    ctx.expect_same_dtype(0, grad, data.dtype)
    layout = layout_of_images(ctx, data, attrs.window.spatial, arg=1)
    ctx.expect_rank(0, grad, data.ndim)
    expected = expect_windows(ctx, attrs, layout, data, arg=1)
    for axis, (got, size) in enumerate(zip(grad.shape, expected, strict=True)):
        ctx.expect_dim(0, axis, got, size, "the gradient does not fit the data",
                       why=" (the windows of the data)")
    ctx.output(TensorType(data.shape, data.dtype))
    return True


@define_op("nn.max_pool2d_grad", attrs=MaxPool2DAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=2)
def max_pool2d_grad(grad: te.Tensor, data: te.Tensor, attrs: MaxPool2DAttrs) -> te.Tensor:
    """The gradient of ``nn.max_pool2d(data)``, given that of its result.

    The first element equal to the maximum of a window receives its gradient.
    """
    return topi_pool.max_pool_grad(grad, data, attrs.window, Layout.parse(attrs.layout))


@define_op("nn.avg_pool2d_grad", attrs=AvgPool2DAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=2)
def avg_pool2d_grad(grad: te.Tensor, data: te.Tensor, attrs: AvgPool2DAttrs) -> te.Tensor:
    """The gradient of ``nn.avg_pool2d(data)``, given that of its result."""
    return topi_pool.avg_pool_grad(grad, data, attrs.window, Layout.parse(attrs.layout),
                                   count_include_pad=attrs.count_include_pad)


@avg_pool2d_grad.gradient
def _avg_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The operator is linear in the gradient, and its adjoint is the pooling itself."""
    attrs: Any = call.attrs
    return [op.nn.avg_pool2d(dy, **dict(attrs.items())), typed_zeros(call.args[1])]


@max_pool2d_grad.gradient
def _max_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each window reads ``dy`` where its maximum is."""
    attrs = attrs_of(call, MaxPool2DAttrs)
    data = call.args[1]
    values = dict(attrs.items()) | {"layout": "NCHW"}
    chosen = op.nn.max_pool2d_indices(to_order(data, attrs.layout, "NCHW"), **values)
    read = elements_at(to_order(dy, attrs.layout, "NCHW"), infer_expr(chosen, trust=True), call)
    return [to_order(read, "NCHW", attrs.layout), typed_zeros(data)]


def _taps_inside(window: PoolWindow, position: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """The elements of a window that are inside the data, in order."""
    ranges = []
    for axis, i, size in zip(axis_windows(window), position, sizes, strict=True):
        start = i * axis.stride - axis.before
        taps = range(start, start + axis.span, axis.step)
        ranges.append([t for t in taps if 0 <= t < size])
    return itertools.product(*ranges)


def _max_reference(grad: np.ndarray, data: np.ndarray, **values: Any) -> np.ndarray:
    attrs = MaxPool2DAttrs(**values)
    layout = Layout.parse(attrs.layout)
    x, dy = unblocked_images(data, layout, "HW"), unblocked_images(grad, layout, "HW")
    result = np.zeros_like(x)
    for position in np.ndindex(*dy.shape[2:]):
        taps = list(_taps_inside(attrs.window, position, x.shape[2:]))
        values_ = np.stack([x[(..., *t)] for t in taps])
        best = values_.argmax(axis=0)
        for k, tap in enumerate(taps):
            result[(..., *tap)] += np.where(best == k, dy[(..., *position)], 0)
    return images_in(result, layout, "HW")


def _avg_reference(grad: np.ndarray, data: np.ndarray, **values: Any) -> np.ndarray:
    attrs = AvgPool2DAttrs(**values)
    layout = Layout.parse(attrs.layout)
    x, dy = unblocked_images(data, layout, "HW"), unblocked_images(grad, layout, "HW")
    result = np.zeros(x.shape)
    for position in np.ndindex(*dy.shape[2:]):
        taps = list(_taps_inside(attrs.window, position, x.shape[2:]))
        count = len(taps)
        if attrs.count_include_pad:
            count = 1
            windows = axis_windows(attrs.window)
            for axis, i, size in zip(windows, position, x.shape[2:], strict=True):
                start = i * axis.stride
                inside = range(start, min(start + axis.span, size + axis.before + axis.after),
                               axis.step)
                count *= len(inside)
        for tap in taps:
            result[(..., *tap)] += dy[(..., *position)] / count
    return images_in(result.astype(data.dtype), layout, "HW")


_CASES = (
    op_case((1, 2, 3, 3), (1, 2, 6, 7), pool_size=(2, 3), strides=(2, 2), padding=(0, 0)),
    op_case((2, 2, 4, 4), (2, 2, 7, 7), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    op_case((1, 1, 3, 4), (1, 1, 7, 7), pool_size=(3, 3), strides=(2, 2), padding=(0, 1, 0, 0),
            ceil_mode=True),
    op_case((1, 5, 4, 2), (1, 6, 6, 2), pool_size=(2, 2), dilation=(1, 2), layout="NHWC"),
)
max_pool2d_grad.spec(_max_reference, *_CASES)
avg_pool2d_grad.spec(
    _avg_reference, *_CASES,
    op_case((1, 1, 6, 6), (1, 1, 6, 6), pool_size=(3, 3), padding=(1, 1), count_include_pad=True),
)

for _op in (max_pool2d_grad, avg_pool2d_grad):
    _op.batching(merging(0, 1, layout="layout"))
for _pool in (max_pool2d_grad, avg_pool2d_grad):
    _pool.jvp(applied_to_first_tangent)  # the data only chooses elements of windows
