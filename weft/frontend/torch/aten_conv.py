"""Converters of convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("convolution")
def convolution(
    node: Node, x: Expr, weight: Expr, bias: Expr | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Expr:
    """Over one or two spatial axes; weights are (out, in / groups, …), transposed (in, out, …)."""
    spatial = rank_of(x) - 2
    if spatial not in (1, 2):
        raise node.unsupported(f"{spatial} spatial axes", expected="1 or 2")
    # torch lets one number stand for all axes.
    sizes = [tuple(v) if len(v) == spatial else (v[0],) * spatial
             for v in (stride, padding, dilation, output_padding or [0])]
    if spatial == 1:
        x, weight = (node.call(op.expand_dims, v, axis=2, num_newaxis=1) for v in (x, weight))
        neutral = (1, 0, 1, 0)
        sizes = [(n, *v) for n, v in zip(neutral, sizes, strict=True)]
    result = (_transposed if transposed else _forward)(node, x, weight, *sizes, groups)
    if spatial == 1:
        result = node.call(op.squeeze, result, axis=(2,))
    return result if bias is None else node.call(op.nn.bias_add, result, bias, axis=1)


Pair = tuple[int, ...]


def _forward(node: Node, x: Expr, weight: Expr, stride: Pair, padding: Pair, dilation: Pair,
             _output_padding: Pair, groups: int) -> Expr:
    channels, _, *kernel = shape_in(weight)
    return node.call(op.nn.conv2d, x, weight, strides=stride, padding=(*padding, *padding),
                     dilation=dilation, groups=groups, channels=channels,
                     kernel_size=tuple(kernel))


def _transposed(node: Node, x: Expr, weight: Expr, stride: Pair, padding: Pair, dilation: Pair,
                output_padding: Pair, groups: int) -> Expr:
    _, channels, *kernel = shape_in(weight)
    return node.call(op.nn.conv2d_transpose, x, weight, strides=stride,
                     padding=(*padding, *padding), dilation=dilation, groups=groups,
                     output_padding=output_padding, channels=channels * groups,
                     kernel_size=tuple(kernel))
