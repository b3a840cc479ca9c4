"""Converter of convolution."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, window_of
from weft.ir.expr import Expr
from weft.ir.shape import dims_equal
from weft.support.errors import UnsupportedModelError

_IMAGE_RANK = 4


@converts("Conv", attributes=(*WINDOW_ATTRIBUTES, "group"))
def conv(node: Node) -> Expr:
    """Over one or two spatial axes; one axis is two, the first of size 1."""
    data, weight, rank = node.input(0), node.input(1), node.rank()
    if rank not in (_IMAGE_RANK - 1, _IMAGE_RANK):
        raise UnsupportedModelError(
            "Conv over an input of this rank",
            where=node.span,
            expected="rank 3 (one spatial axis) or 4 (two)",
            got=f"rank {rank}",
        )
    groups = node.attrs.integer("group", 1)
    kernel = _checked_kernel(node, groups)
    window = window_of(node, kernel, node.shape()[2:])
    if rank < _IMAGE_RANK:
        data, weight = _widened(node, data), _widened(node, weight)
        window = window.widened()
    result = node.call(
        op.nn.conv2d,
        data,
        weight,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=groups,
        channels=tensor_type(weight).shape[0],
        kernel_size=window.kernel,
    )
    if node.has_input(2):
        result = node.call(op.nn.bias_add, result, node.input(2), axis=1)
    return node.call(op.squeeze, result, axis=(2,)) if rank < _IMAGE_RANK else result


def _widened(node: Node, value: Expr) -> Expr:
    return node.call(op.expand_dims, value, axis=2, num_newaxis=1)


def _checked_kernel(node: Node, groups: int) -> tuple[int, ...]:
    """The spatial sizes of the weight, once everything that the node says of it agrees."""
    shape = node.shape(1)
    if len(shape) != node.rank():
        raise node.fail(
            "the weight has another rank than the input",
            expected=f"rank {node.rank()}",
            got=f"shape ({', '.join(map(str, shape))})",
        )
    fixed = tuple(d for d in shape if isinstance(d, int))
    if len(fixed) != len(shape):
        raise UnsupportedModelError("Conv with a weight of symbolic shape", where=node.span)
    stated = node.attrs.integers("kernel_shape")
    if stated is not None and stated != fixed[2:]:
        raise node.fail(
            "kernel_shape differs from the weight", expected=str(fixed[2:]), got=str(stated)
        )
    if groups < 1 or fixed[0] % groups:
        raise node.fail(
            "group does not divide the output channels",
            expected=f"a divisor of {fixed[0]}",
            got=str(groups),
        )
    channels = node.shape()[1]
    if dims_equal(channels, fixed[1] * groups) is False:
        raise node.fail(
            "the input channels do not match the weight",
            expected=f"{fixed[1]} * {groups} groups = {fixed[1] * groups} channels",
            got=f"{channels} channels",
        )
    return fixed[2:]
