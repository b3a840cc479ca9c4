"""Converters of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


def _axes_in_name(node: Node) -> int:
    """The number in ``max_pool2d``: how many axes a window has."""
    return int(node.op.partition("pool")[2][0])


@converts("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
          "max_pool3d_with_indices")
def max_pool(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
             padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
             ceil_mode: bool = False) -> Expr | tuple[Expr]:
    """The positions of the largest elements, the second result, are not computed."""
    operator = _MAX[_axes_in_name(node)]
    result = _pool(node, operator, x, kernel, stride, padding, dilation, ceil_mode)
    return (result,) if "with_indices" in node.op else result


@converts("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
             padding: Sequence[int] = (0,), ceil_mode: bool = False,
             count_include_pad: bool = True, divisor: int | None = None) -> Expr:
    axes = _axes_in_name(node)
    counts_all = True if divisor else bool(count_include_pad)
    result = _pool(node, _AVERAGE[axes], x, kernel, stride, padding, (1,), ceil_mode,
                   count_include_pad=counts_all)
    if not divisor:
        return result
    scale = math.prod(_per_axis(kernel, axes)) / divisor
    return node.call(op.multiply, result, node.scalar_like(scale, result))


def _per_axis(sizes: Sequence[int], axes: int) -> tuple[int, ...]:
    """One number may stand for all axes."""
    return tuple(sizes) if len(sizes) == axes else (sizes[0],) * axes


def _pool(node: Node, operator: Op, x: Expr, kernel: Sequence[int], stride: Sequence[int],
          padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
          **attrs: Any) -> Expr:
    """Without a batch axis ``x`` is a batch of one."""
    axes, shape = _axes_in_name(node), shape_in(x)
    is_batch = rank_of(x) == axes + 2
    pads = _per_axis(padding, axes)
    result = node.call(
        operator, x if is_batch else node.reshape(x, (1, *shape)),
        pool_size=_per_axis(kernel, axes), strides=_per_axis(stride or kernel, axes),
        dilation=_per_axis(dilation, axes), padding=(*pads, *pads), ceil_mode=bool(ceil_mode),
        **attrs)
    return result if is_batch else node.reshape(result, shape_in(result)[1:])


@converts("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
          "_adaptive_avg_pool3d")
def adaptive_avg_pool(node: Node, x: Expr, sizes: Sequence[int]) -> Expr:
    """The mean over windows that share each axis out as evenly as whole numbers allow."""
    if all(size == 1 for size in sizes):
        return node.call(op.mean, x, axis=tuple(range(rank_of(x) - len(sizes), rank_of(x))),
                         keepdims=True)
    for axis, size in enumerate(sizes, start=rank_of(x) - len(sizes)):
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
    return node.tuple_call(op.concatenate, means, axis=axis)
