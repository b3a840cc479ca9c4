"""Converters of pooling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, Window, indices_of_largest, window_of
from weft.ir import Expr, Op, dim_product

_IMAGE_RANK = 4


@converts("MaxPool", attributes=(*WINDOW_ATTRIBUTES, "ceil_mode", "storage_order"), outputs=2)
def max_pool(node: Node) -> Sequence[Expr]:
    largest = _pool(node, op.nn.max_pool2d)
    if node.outputs_read <= 1:
        return (largest,)
    window = window_of(node, node.attrs.integers("kernel_shape") or (), node.shape()[2:])
    return largest, indices_of_largest(node, window)


@converts("AveragePool", attributes=(*WINDOW_ATTRIBUTES, "ceil_mode", "count_include_pad"))
def average_pool(node: Node) -> Expr:
    return _pool(node, op.nn.avg_pool2d, count_include_pad=node.attrs.flag("count_include_pad"))


@converts("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    return _over_image(node, op.nn.global_avg_pool2d)


@converts("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    return _over_image(node, op.nn.global_max_pool2d)


def _pool(node: Node, operator: Op, **attrs: Any) -> Expr:
    _check_rank(node)
    kernel = node.attrs.integers("kernel_shape")
    if kernel is None:
        raise node.fail("attribute 'kernel_shape' is missing")
    window = window_of(node, kernel, node.shape()[2:])
    if any(
        pad >= (size - 1) * dilation + 1
        for pad, size, dilation in zip(
            window.padding, window.kernel * 2, window.dilations * 2, strict=True
        )
    ):
        raise node.fail(
            "the padding is as large as the window",
            expected=f"less than {window.kernel}",
            got=str(window.padding),
        )
    attrs["ceil_mode"] = node.attrs.flag("ceil_mode")
    if node.rank() == _IMAGE_RANK:
        return _pool_image(node, operator, node.input(0), window, attrs)
    return _pool_axes(node, operator, window, attrs)


def _pool_image(
    node: Node, operator: Op, x: Expr, window: Window, attrs: Mapping[str, Any]
) -> Expr:
    return node.call(
        operator,
        x,
        pool_size=window.kernel,
        strides=window.strides,
        dilation=window.dilations,
        padding=window.padding,
        **attrs,
    )


def _pool_axes(node: Node, operator: Op, window: Window, attrs: Mapping[str, Any]) -> Expr:
    """Pool one spatial axis after the other, each with a 2-D pool of width 1, the last of height 1.

    Max pooling is separable. So is average pooling: a window is a box, so the number of elements
    that count along an axis is the same for all positions along the other axes.
    """
    x = node.input(0)
    for axis in range(len(window.kernel)):
        shape = tensor_type(x).shape
        at = axis + 2
        # The last axis is the width: its elements are adjacent, and fill vectors.
        order = -1 if at + 1 == len(shape) else 1
        image = (1, dim_product(shape[:at]), *(shape[at], dim_product(shape[at + 1:]))[::order])
        line = Window(
            (window.kernel[axis], 1)[::order],
            (window.strides[axis], 1)[::order],
            (window.dilations[axis], 1)[::order],
            (window.before[axis], 0)[::order],
            (window.after[axis], 0)[::order],
        )
        pooled = _pool_image(node, operator, reshape_to(node, x, image), line, attrs)
        size = tensor_type(pooled).shape[2:][::order][0]
        x = reshape_to(node, pooled, (*shape[:at], size, *shape[at + 1:]))
    return x


def _over_image(node: Node, operator: Op) -> Expr:
    """Apply a global 2-D pool to all spatial axes, flattened to the width of an image."""
    _check_rank(node)
    if node.rank() == _IMAGE_RANK:
        return node.call(operator, node.input(0))
    shape = node.shape()
    image = (*shape[:2], 1, dim_product(shape[2:]))
    pooled = node.call(operator, reshape_to(node, node.input(0), image))
    return reshape_to(node, pooled, (*shape[:2], *(1,) * (len(shape) - 2)))


@converts("LpPool", since=2, attributes=(*WINDOW_ATTRIBUTES, "ceil_mode", "p"))
def lp_pool(node: Node) -> Expr:
    """Compute the p-norm of each window from the average pool of |x|**p, including padding."""
    p = float(node.attrs.integer("p", 2))
    if p < 1:
        raise node.fail("p is too small", expected="1 or more", got=str(p))
    kernel = node.attrs.integers("kernel_shape")
    if kernel is None:
        raise node.fail("attribute 'kernel_shape' is missing")
    x = node.input(0)
    powers = node.call(op.power, node.call(op.abs, x), node.scalar_like(p, x))
    padded, window = _padded_whole(node, powers, window_of(node, kernel, node.shape()[2:]))
    inner = dataclasses.replace(node, inputs=(padded,))
    mean = _pool_axes(inner, op.nn.avg_pool2d, window, {"ceil_mode": False})
    total = node.call(op.multiply, mean, node.scalar_like(math.prod(window.kernel), mean))
    return node.call(op.power, total, node.scalar_like(1 / p, total))


def _padded_whole(node: Node, x: Expr, window: Window) -> tuple[Expr, Window]:
    """Pad ``x`` explicitly with zeros, including those of the last window with ``ceil_mode``."""
    width = [(0, 0), (0, 0)]
    for axis, size in enumerate(node.shape()[2:]):
        span = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        before, after, stride = window.before[axis], window.after[axis], window.strides[axis]
        if node.attrs.flag("ceil_mode") and isinstance(size, int):
            room = size + before + after - span
            last = -(-room // stride)
            if last * stride < size + before:
                after = max(after, last * stride + span - size - before)
        width.append((before, after))
    zeros = (0,) * len(window.kernel)
    if any(map(any, width)):
        x = node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=tuple(width))
    return x, dataclasses.replace(window, before=zeros, after=zeros)


def _check_rank(node: Node) -> None:
    if node.rank() < _IMAGE_RANK - 1:
        raise node.fail(
            "the input needs at least one spatial axis", expected="rank 3 or more",
            got=f"rank {node.rank()}",
        )
