"""Converters of pooling."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, window_of
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.support.errors import UnsupportedModelError

_IMAGE_RANK = 4


@converts("MaxPool", attributes=(*WINDOW_ATTRIBUTES, "ceil_mode"), only={"storage_order": (0,)})
def max_pool(node: Node) -> Expr:
    return _pool(node, op.nn.max_pool2d)


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
    if node.rank() < _IMAGE_RANK:
        window = window.widened()
    return _over_image(
        node,
        operator,
        pool_size=window.kernel,
        strides=window.strides,
        dilation=window.dilations,
        padding=window.padding,
        ceil_mode=node.attrs.flag("ceil_mode"),
        **attrs,
    )


def _over_image(node: Node, operator: Op, **attrs: Any) -> Expr:
    """One spatial axis is two, the first of size 1."""
    _check_rank(node)
    if node.rank() == _IMAGE_RANK:
        return node.call(operator, node.input(0), **attrs)
    wide = node.call(op.expand_dims, node.input(0), axis=2, num_newaxis=1)
    return node.call(op.squeeze, node.call(operator, wide, **attrs), axis=(2,))


def _check_rank(node: Node) -> None:
    if node.rank() not in (_IMAGE_RANK - 1, _IMAGE_RANK):
        raise UnsupportedModelError(
            f"{node.op} over an input of this rank",
            where=node.span,
            expected="rank 3 (one spatial axis) or 4 (two)",
            got=f"rank {node.rank()}",
        )
