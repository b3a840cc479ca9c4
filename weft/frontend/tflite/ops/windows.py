"""Convolutions and pools over images whose channels are last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.node import Node, known_options
from weft.frontend.tflite.ops.elementwise import activated
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.support.dataclass import dataclass

_PADDINGS = {0: "SAME", 1: "VALID"}
_MOST_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Windows:
    """Strides, dilations and paddings (all before, then all after) of the spatial axes."""

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]

    def attrs(self) -> dict[str, Any]:
        return {"strides": self.strides, "dilation": self.dilation, "padding": self.padding}


def _options(node: Node, prefix: str, letters: str, default: int) -> tuple[int, ...]:
    """The options ``prefix`` with W, H or D behind it, for the axes in ``letters``."""
    names = {"D": "D", "H": "H", "W": "W"}
    suffix = "Factor" if prefix == "Dilation" else ""
    found = tuple(int(node.option(f"{prefix}{names[c]}{suffix}", default)) for c in letters)
    if any(not 0 < value <= _MOST_SIZE for value in found):
        raise node.fail(f"{prefix.lower()} must be positive", got=str(found))
    return found


def _windows(node: Node, kernel: Sequence[int], image: Sequence[Any], *, dilated: bool = True
             ) -> _Windows:
    letters = "DHW"[3 - len(kernel):]
    strides = _options(node, "Stride", letters, 1)
    dilation = _options(node, "Dilation", letters, 1) if dilated else (1,) * len(kernel)
    sizes = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return _Windows(strides, dilation, _padding(node, image, sizes, strides))


def _padding(node: Node, image: Sequence[Any], sizes: Sequence[int], strides: Sequence[int]
             ) -> tuple[int, ...]:
    """For ``SAME``: ``ceil(size / stride)`` windows; an odd element is behind."""
    if known_options(node, _PADDINGS, node.option("Padding"), "padding") == "VALID":
        return (0,) * 2 * len(image)
    totals = []
    for size, window, stride in zip(image, sizes, strides, strict=True):
        if stride == 1:
            totals.append(window - 1)
            continue
        (known,) = node.fixed((size,), "SAME padding")
        totals.append(max((-(-known // stride) - 1) * stride + window - known, 0))
    return (*(t // 2 for t in totals), *(t - t // 2 for t in totals))


def with_bias(node: Node, x: Expr, index: int) -> Expr:
    """``x`` plus a bias for each channel, if there is one, and the activation."""
    if node.has(index):
        x = node.call(op.nn.bias_add, x, node.input(index), axis=tensor_type(x).ndim - 1)
    return activated(node, x)


def _images(node: Node, index: int, rank: int) -> tuple[Any, ...]:
    if node.rank(index) != rank:
        raise node.fail(f"operand {index} has another rank", expected=str(rank),
                        got=str(node.rank(index)))
    return node.shape(index)


@converts("CONV_2D")
def conv2d(node: Node) -> Expr:
    """The kernel is OHWI; groups follow from its input channels."""
    image = _images(node, 0, 4)
    _, height, width, depth = node.fixed(_images(node, 1, 4), "a kernel")
    at = _windows(node, (height, width), image[1:3])
    (channels,) = node.fixed(image[3:], "a number of channels")
    if depth == 0 or channels % depth:
        raise node.fail("the channels of the kernel do not divide those of the image",
                        expected=f"a divisor of {channels}", got=str(depth))
    kernel = _moved(node, lambda w: w.transpose(1, 2, 3, 0), 3, (1, 2, 3, 0))
    made = node.call(op.nn.conv2d, node.input(0), kernel, groups=channels // depth,
                     data_layout="NHWC", kernel_layout="HWIO", **at.attrs())
    return with_bias(node, made, 2)


@converts("DEPTHWISE_CONV_2D")
def depthwise_conv2d(node: Node) -> Expr:
    """The kernel is (1, height, width, channels * multiplier)."""
    image = _images(node, 0, 4)
    one, height, width, outputs = node.fixed(_images(node, 1, 4), "a kernel")
    at = _windows(node, (height, width), image[1:3])
    (channels,) = node.fixed(image[3:], "a number of channels")
    if one != 1 or channels == 0 or outputs % channels:
        raise node.fail("the kernel does not fit the channels", got=str(node.shape(1)),
                        expected=f"(1, height, width, a multiple of {channels})")
    shape = (height, width, 1, outputs)
    kernel = node.weight(1, lambda w: w.reshape(shape), 3)
    if kernel is None:
        kernel = node.reshape(node.input(1), shape)
    made = node.call(op.nn.conv2d, node.input(0), kernel, groups=channels,
                     data_layout="NHWC", kernel_layout="HWIO", **at.attrs())
    return with_bias(node, made, 2)


def _moved(node: Node, change: Callable[[np.ndarray], np.ndarray], axis: int,
           axes: tuple[int, ...]) -> Expr:
    """A kernel, operand 1, with its axes in another order."""
    kernel = node.weight(1, change, axis)
    return node.transpose(node.input(1), axes) if kernel is None else kernel


@converts("TRANSPOSE_CONV")
def transpose_conv(node: Node) -> Expr:
    """Operands: the shape of the result, the kernel as OHWI, the image, a bias."""
    result = node.dims(0, "the shape of the result")
    _, height, width, _ = node.fixed(_images(node, 1, 4), "a kernel")
    image = _images(node, 2, 4)
    if len(result) != 4:
        raise node.fail("the shape of the result needs four numbers", got=str(result))
    strides = _options(node, "Stride", "HW", 1)
    padding, extra = _transposed(node, node.fixed(result[1:3], "a transposed convolution"),
                                 node.fixed(image[1:3], "a transposed convolution"),
                                 (height, width), strides)
    kernel = _moved(node, lambda w: w.transpose(3, 0, 1, 2), 1, (3, 0, 1, 2))
    made = node.call(op.nn.conv2d_transpose, node.transpose(node.input(2), (0, 3, 1, 2)), kernel,
                     strides=strides, padding=padding, output_padding=extra)
    return with_bias(node, node.transpose(made, (0, 2, 3, 1)), 3)


def _transposed(node: Node, result: Sequence[int], image: Sequence[int], kernel: Sequence[int],
                strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding of the convolution whose gradient this is, and elements behind its result."""
    padding = _padding(node, result, kernel, strides)
    count = len(kernel)
    extra = tuple(
        size - ((n - 1) * stride + k - before - after)
        for size, n, stride, k, before, after in zip(
            result, image, strides, kernel, padding[:count], padding[count:], strict=True))
    if any(not 0 <= n < stride for n, stride in zip(extra, strides, strict=True)):
        raise node.unsupported("a result of a size that no convolution maps to the image",
                               got=f"{tuple(result)} and {tuple(image)}")
    return padding, extra


@converts("CONV_3D")
def conv3d(node: Node) -> Expr:
    """The kernel is DHWIO."""
    image = _images(node, 0, 5)
    kernel = node.fixed(_images(node, 1, 5), "a kernel")
    at = _windows(node, kernel[:3], image[1:4])
    made = node.call(op.nn.conv3d, node.transpose(node.input(0), (0, 4, 1, 2, 3)),
                     _moved(node, lambda w: w.transpose(4, 3, 0, 1, 2), 0, (4, 3, 0, 1, 2)),
                     **at.attrs())
    return with_bias(node, node.transpose(made, (0, 2, 3, 4, 1)), 2)


@converts("CONV_3D_TRANSPOSE")
def conv3d_transpose(node: Node) -> Expr:
    """Operands: the shape of the result, the kernel as DHWOI, the image, a bias."""
    result = node.fixed(node.dims(0, "the shape of the result"), "a transposed convolution")
    image = node.fixed(_images(node, 2, 5), "a transposed convolution")
    kernel = node.fixed(_images(node, 1, 5), "a kernel")[:3]
    strides = _options(node, "Stride", "DHW", 1)
    padding, extra = _transposed(node, result[1:4], image[1:4], kernel, strides)
    made = node.call(op.nn.conv3d_transpose, node.transpose(node.input(2), (0, 4, 1, 2, 3)),
                     _moved(node, lambda w: w.transpose(4, 3, 0, 1, 2), 1, (4, 3, 0, 1, 2)),
                     strides=strides, padding=padding, output_padding=extra)
    return with_bias(node, node.transpose(made, (0, 2, 3, 4, 1)), 3)


def _pooled(node: Node, operator: Op, x: Expr) -> Expr:
    size = (int(node.option("FilterHeight")), int(node.option("FilterWidth")))
    if min(size) < 1 or max(size) > _MOST_SIZE:
        raise node.fail("the window must be positive", got=str(size))
    at = _windows(node, size, _images(node, 0, 4)[1:3], dilated=False)
    return node.call(operator, x, pool_size=size, strides=at.strides, padding=at.padding,
                     layout="NHWC")


@converts("MAX_POOL_2D")
def max_pool(node: Node) -> Expr:
    return activated(node, _pooled(node, op.nn.max_pool2d, node.input(0)))


@converts("AVERAGE_POOL_2D")
def average_pool(node: Node) -> Expr:
    """Averages count no padding."""
    return activated(node, _pooled(node, op.nn.avg_pool2d, node.input(0)))


@converts("L2_POOL_2D")
def root_mean_square_pool(node: Node) -> Expr:
    x = node.input(0)
    mean = _pooled(node, op.nn.avg_pool2d, node.call(op.multiply, x, x))
    return activated(node, node.call(op.sqrt, mean))
