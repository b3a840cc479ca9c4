"""Converters of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op


@converts("max_pool2d", "max_pool2d_with_indices")
def max_pool2d(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
               padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
               ceil_mode: bool = False) -> Expr | tuple[Expr]:
    """The positions of the largest elements, the second result, are not computed."""
    result = _pool2d(node, op.nn.max_pool2d, x, kernel, stride, padding, dilation, ceil_mode)
    return (result,) if "with_indices" in node.op else result


@converts("avg_pool2d")
def avg_pool2d(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
               padding: Sequence[int] = (0,), ceil_mode: bool = False,
               count_include_pad: bool = True, divisor: int | None = None) -> Expr:
    result = _pool2d(node, op.nn.avg_pool2d, x, kernel, stride, padding, (1,), ceil_mode,
                     count_include_pad=True if divisor else bool(count_include_pad))
    if divisor:
        scale = math.prod(_pair(kernel)) / divisor
        result = node.call(op.multiply, result, node.scalar_like(scale, result))
    return result


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])


def _pool2d(node: Node, operator: Op, x: Expr, kernel: Sequence[int], stride: Sequence[int],
            padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
            **attrs: Any) -> Expr:
    shape = shape_in(x)
    image = x if rank_of(x) == 4 else node.reshape(x, (1, *shape))
    pads = _pair(padding)
    result = node.call(operator, image, pool_size=_pair(kernel),
                       strides=_pair(stride or kernel), dilation=_pair(dilation),
                       padding=(*pads, *pads), ceil_mode=bool(ceil_mode), **attrs)
    return result if rank_of(x) == 4 else node.reshape(result, shape_in(result)[1:])


@converts("max_pool1d", "avg_pool1d")
def pool1d(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
           padding: Sequence[int] = (0,), *options: Any) -> Expr:
    """As an image of one row."""
    wide = node.call(op.expand_dims, x, axis=rank_of(x) - 1, num_newaxis=1)
    sizes = ((1, *kernel), (1, *(stride or kernel)), (0, *padding))
    if "max" in node.op:
        dilation, ceil_mode = (*options, (1,), False)[:2] if options else ((1,), False)
        pooled = _pool2d(node, op.nn.max_pool2d, wide, *sizes, (1, *dilation), ceil_mode)
    else:
        pooled = avg_pool2d(node, wide, *sizes, *options)
    return node.call(op.squeeze, pooled, axis=(rank_of(pooled) - 2,))


@converts("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool(node: Node, x: Expr, sizes: Sequence[int]) -> Expr:
    """The mean over windows that share each axis out as evenly as whole numbers allow."""
    first = rank_of(x) - len(sizes)
    for axis, size in enumerate(sizes, start=first):
        x = _shared_out(node, x, axis, size)
    return x


def _shared_out(node: Node, x: Expr, axis: int, size: int) -> Expr:
    shape = shape_in(x)
    total = shape[axis]
    if size == total:
        return x
    if size and total % size == 0:
        split = node.reshape(x, (*shape[:axis], size, total // size, *shape[axis + 1 :]))
        return node.call(op.mean, split, axis=(axis + 1,), keepdims=False)
    windows = [node.slice(x, axis, i * total // size, -(-(i + 1) * total // size))
               for i in range(size)]
    means = [node.call(op.mean, w, axis=(axis,), keepdims=True) for w in windows]
    return reduce(lambda a, b: node.tuple_call(op.concatenate, [a, b], axis=axis), means)
