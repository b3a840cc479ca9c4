"""Converters of pooling and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.frontend.torch.vjp import input_gradients
from weft.ir import Expr, Op
from weft.topi.nn.window import whole_window_padding

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_INDICES = {1: op.nn.max_pool1d_indices, 2: op.nn.max_pool2d_indices, 3: op.nn.max_pool3d_indices}
_INDICES_GRAD = {2: op.nn.max_pool2d_indices_grad, 3: op.nn.max_pool3d_indices_grad}
_ADAPTIVE_MAX = {2: op.nn.adaptive_max_pool2d, 3: op.nn.adaptive_max_pool3d}
_ADAPTIVE_INDICES = {2: op.nn.adaptive_max_pool2d_indices, 3: op.nn.adaptive_max_pool3d_indices}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


def _axes_in_name(node: Node) -> int:
    """The number of pooled axes, from the operator's name: 2 for ``max_pool2d``."""
    return int(node.op.partition("pool")[2][0])


@converts("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
          "max_pool3d_with_indices")
def max_pool(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
             padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
             ceil_mode: bool = False) -> Expr | tuple[Expr, Expr]:
    """The maximum of each window; ``with_indices`` adds its flat index in the pooled axes."""
    axes = _axes_in_name(node)
    geometry = (kernel, stride, padding, dilation, ceil_mode)
    result = _pool(node, _MAX[axes], x, *geometry)
    if "with_indices" not in node.op:
        return result
    return result, _pool(node, _INDICES[axes], x, *geometry)


@converts("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(node: Node, grad: Expr, x: Expr, kernel: Sequence[int],
                      stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
                      ceil_mode: bool, indices: Expr) -> Expr:
    axes = _axes_in_name(node)
    sizes = shape_in(x)[-axes:]
    grads, positions = (_batch(node, t, axes) for t in (grad, indices))
    result = node.call(_INDICES_GRAD[axes], grads, positions, size=sizes,
                       **_window(axes, kernel, stride, padding, dilation, ceil_mode))
    return node.reshape(result, shape_in(x))


@converts("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(node: Node, x: Expr, kernel: Sequence[int], stride: Sequence[int] = (),
             padding: Sequence[int] = (0,), ceil_mode: bool = False,
             count_include_pad: bool = True, divisor: int | None = None) -> Expr:
    axes = _axes_in_name(node)
    return _average(node, axes, x, (kernel, stride, padding, ceil_mode), count_include_pad,
                    divisor)


@converts("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(node: Node, grad: Expr, x: Expr, kernel: Sequence[int],
                      stride: Sequence[int], padding: Sequence[int], ceil_mode: bool,
                      count_include_pad: bool, divisor: int | None) -> Expr:
    axes = _axes_in_name(node)
    if axes == 2 and not divisor:
        result = node.call(op.nn.avg_pool2d_grad, _batch(node, grad, axes), _batch(node, x, axes),
                           count_include_pad=bool(count_include_pad),
                           **_window(axes, kernel, stride, padding, (1,), ceil_mode))
        return node.reshape(result, shape_in(x))
    geometry = (kernel, stride, padding, ceil_mode)
    return input_gradients(
        lambda data: _average(node, axes, data, geometry, count_include_pad, divisor), (x,),
        grad)[0]


def _average(node: Node, axes: int, x: Expr, geometry: Any, count_include_pad: bool,
             divisor: int | None) -> Expr:
    """The mean of each window, or its sum divided by ``divisor``."""
    kernel, stride, padding, ceil_mode = geometry
    if not divisor:
        return _pool(node, _AVERAGE[axes], x, kernel, stride, padding, (1,), ceil_mode,
                     count_include_pad=bool(count_include_pad))
    window = _window(axes, kernel, stride, padding, (1,), ceil_mode)
    means = _pool(node, _AVERAGE[axes], _whole_windows(node, x, window), kernel, stride, (0,),
                  (1,), False)
    scale = math.prod(window["pool_size"]) / divisor
    return node.call(op.multiply, means, node.scalar_like(scale, means))


def _whole_windows(node: Node, x: Expr, window: dict[str, Any]) -> Expr:
    """``x`` with explicit padding, and with zeros up to the end of the last window."""
    return node.call(op.nn.pad, x, node.scalar_like(0, x),
                     pad_width=whole_window_padding(shape_in(x), window))


def _per_axis(sizes: Sequence[int], axes: int) -> tuple[int, ...]:
    """Expand a single number to all axes."""
    return tuple(sizes) if len(sizes) == axes else (sizes[0],) * axes


def _window(axes: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
            dilation: Sequence[int], ceil_mode: bool) -> dict[str, Any]:
    """The window attributes common to all pools."""
    pads = _per_axis(padding, axes)
    return {"pool_size": _per_axis(kernel, axes), "strides": _per_axis(stride or kernel, axes),
            "dilation": _per_axis(dilation, axes), "padding": (*pads, *pads),
            "ceil_mode": bool(ceil_mode)}


def _batch(node: Node, x: Expr, axes: int) -> Expr:
    """``x`` with a batch axis; one of size 1 is added if it is missing."""
    return x if rank_of(x) == axes + 2 else node.reshape(x, (1, *shape_in(x)))


def _pool(node: Node, operator: Op, x: Expr, kernel: Sequence[int], stride: Sequence[int],
          padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
          **attrs: Any) -> Expr:
    axes = _axes_in_name(node)
    batch = _batch(node, x, axes)
    result = node.call(operator, batch,
                       **_window(axes, kernel, stride, padding, dilation, ceil_mode), **attrs)
    return result if batch is x else node.reshape(result, shape_in(result)[1:])


@converts("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
          "_adaptive_avg_pool3d")
def adaptive_avg_pool(node: Node, x: Expr, sizes: Sequence[int]) -> Expr:
    """The mean over windows that divide each axis as evenly as possible."""
    if all(size == 1 for size in sizes):
        return node.call(op.mean, x, axis=tuple(range(rank_of(x) - len(sizes), rank_of(x))),
                         keepdims=True)
    for axis, size in enumerate(sizes, start=rank_of(x) - len(sizes)):
        x = _shared_out(node, x, axis, size)
    return x


@converts("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(node: Node, grad: Expr, x: Expr) -> Expr:
    sizes = shape_in(grad)[-_axes_in_name(node):]
    return input_gradients(lambda data: adaptive_avg_pool(node, data, sizes), (x,), grad)[0]


@converts("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(node: Node, x: Expr, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """The maxima over adaptive windows, and their flat indices in the pooled axes."""
    axes = _axes_in_name(node)
    batch = _batch(node, x, axes)
    operators = (_ADAPTIVE_MAX[axes], _ADAPTIVE_INDICES[axes])
    found = [node.call(each, batch, output_size=tuple(sizes)) for each in operators]
    return tuple(node.reshape(f, (*shape_in(x)[:-axes], *sizes)) for f in found)


@converts("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(node: Node, grad: Expr, x: Expr, indices: Expr) -> Expr:
    """Add the gradient of each window to the element that is its maximum."""
    axes, shape = _axes_in_name(node), shape_in(x)
    rows = math.prod(shape[:-axes])
    zeros = node.broadcast(node.scalar_like(0, x), (rows, math.prod(shape[-axes:])))
    flat = [node.reshape(t, (rows, math.prod(shape_in(t)[-axes:]))) for t in (indices, grad)]
    return node.reshape(node.call(op.scatter_elements, zeros, *flat, axis=1, reduction="add"),
                        shape)


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
