"""Converters of convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.frontend.torch.vjp import input_gradients
from weft.ir.expr import Expr

_FORWARD = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


@converts("convolution")
def convolution(
    node: Node, x: Expr, weight: Expr, bias: Expr | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Expr:
    """Weights are (out, in / groups, …), or (in, out / groups, …) if ``transposed``."""
    spatial = rank_of(x) - 2
    if spatial not in _FORWARD:
        raise node.unsupported(f"{spatial} spatial axes", expected="1, 2 or 3")

    def per_axis(sizes: Sequence[int]) -> tuple[int, ...]:
        """Expand a single number to all axes."""
        return tuple(sizes) if len(sizes) == spatial else (sizes[0],) * spatial

    first, second, *kernel = shape_in(weight)
    pads = per_axis(padding)
    window = {"strides": per_axis(stride), "padding": (*pads, *pads),
              "dilation": per_axis(dilation), "groups": groups, "kernel_size": tuple(kernel)}
    if transposed:
        result = node.call(_TRANSPOSED[spatial], x, weight, channels=second * groups,
                           output_padding=per_axis(output_padding), **window)
    else:
        result = node.call(_FORWARD[spatial], x, weight, channels=first, **window)
    return result if bias is None else node.call(op.nn.bias_add, result, bias, axis=1)


@converts("convolution_backward")
def convolution_backward(
    node: Node, grad: Expr, x: Expr, weight: Expr, _bias_sizes: Sequence[int] | None,
    *window: Any,
) -> tuple[Expr, Expr, Expr]:
    """The gradients of data, weight and bias; the graph keeps only those that it reads."""
    *geometry, _wanted = window
    for_x, for_weight = input_gradients(
        lambda a, b: convolution(node, a, b, None, *geometry), (x, weight), grad)
    for_bias = node.call(op.sum, grad, axis=(0, *range(2, rank_of(grad))), keepdims=False)
    return for_x, for_weight, for_bias
