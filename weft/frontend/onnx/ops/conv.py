"""Converter of convolution."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.ops.conv_volume import convolve
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, check_one_padding, window_of
from weft.ir import Expr, dims_equal
from weft.support.errors import UnsupportedModelError

_LEAST_RANK = 3


@converts("Conv", attributes=(*WINDOW_ATTRIBUTES, "group"))
def conv(node: Node) -> Expr:
    """Convert a convolution over one or more spatial axes."""
    if node.rank() < _LEAST_RANK:
        raise node.fail(
            "the input needs at least one spatial axis", expected="rank 3 or more",
            got=f"rank {node.rank()}",
        )
    groups = node.attrs.integer("group", 1)
    kernel = _checked_kernel(node, groups)
    check_one_padding(node)
    window = window_of(node, kernel, node.shape()[2:])
    result = convolve(node, node.input(0), node.input(1), window, groups)
    return node.call(op.nn.bias_add, result, node.input(2), axis=1) if node.has_input(2) else result


def _checked_kernel(node: Node, groups: int) -> tuple[int, ...]:
    """Return the spatial sizes of the weight; raises if attributes or input do not match it."""
    shape = node.shape(1)
    if len(shape) != node.rank():
        raise node.fail(
            "the weight and the input differ in rank",
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
