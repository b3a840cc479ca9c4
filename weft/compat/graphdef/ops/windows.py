"""Convolutions and pools: windows that move over images, with TensorFlow's padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import op
from weft.compat.graphdef.node import Node, static_shape
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr
from weft.support.dataclass import dataclass

_IMAGE = ("strides", "padding", "data_format", "dilations", "use_cudnn_on_gpu",
          "explicit_paddings")
_POOL = ("ksize", "strides", "padding", "data_format", "explicit_paddings")


@dataclass(frozen=True, slots=True)
class _Windows:
    """Strides, dilations and paddings (all before, then all after) of the spatial axes."""

    layout: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]


def _windows(node: Node, kernel: Sequence[int], spatial: int = 2) -> _Windows:
    default = "NHWC" if spatial == 2 else "NDHWC"
    layout = node.attr("data_format", str, default)
    if layout not in (default, "NCHW" if spatial == 2 else "NCDHW"):
        raise node.unsupported("unknown data_format", got=repr(layout))
    ones = (1,) * (spatial + 2)
    strides = _spatial(node, layout, node.sizes("strides", ones), "strides")
    dilations = _spatial(node, layout, node.sizes("dilations", ones), "dilations")
    sizes = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padding = node.attr("padding", str)
    if padding == "VALID":
        return _Windows(layout, strides, dilations, (0,) * 2 * spatial)
    if padding == "EXPLICIT":
        pairs = node.sizes("explicit_paddings")
        if len(pairs) != 2 * (spatial + 2):
            raise node.fail("explicit_paddings needs two numbers for each axis", got=str(pairs))
        at = [layout.index(c) for c in "DHW"[3 - spatial:]]
        return _Windows(layout, strides, dilations,
                        (*(pairs[2 * a] for a in at), *(pairs[2 * a + 1] for a in at)))
    if padding != "SAME":
        raise node.fail("unknown padding", got=repr(padding), expected="SAME, VALID or EXPLICIT")
    image = [node.shape()[layout.index(c)] for c in "DHW"[3 - spatial:]]
    return _Windows(layout, strides, dilations, _same(node, image, sizes, strides))


def _spatial(node: Node, layout: str, values: Sequence[int], what: str) -> tuple[int, ...]:
    """The values of the spatial axes; those of the batch and the channels must be 1."""
    if len(values) != len(layout):
        raise node.fail(f"{what} needs {len(layout)} numbers", got=str(tuple(values)))
    if values[0] != 1 or values[layout.index("C")] != 1:
        raise node.unsupported(f"{what} along the batch or the channels", got=str(tuple(values)))
    return tuple(v for v, axis in zip(values, layout, strict=True) if axis not in "NC")


def _same(node: Node, image: Sequence[object], sizes: Sequence[int], strides: Sequence[int]
          ) -> tuple[int, ...]:
    """Padding for ``ceil(size / stride)`` windows; one more behind than before if it is odd."""
    totals = []
    for size, window, stride in zip(image, sizes, strides, strict=True):
        if stride == 1:
            totals.append(window - 1)
            continue
        (fixed,) = static_shape(node, (size,), "SAME padding")  # type: ignore[arg-type]
        totals.append(max((-(-fixed // stride) - 1) * stride + window - fixed, 0))
    return (*(t // 2 for t in totals), *(t - t // 2 for t in totals))


@converts("Conv2D", inputs=2, attributes=_IMAGE)
def conv2d(node: Node) -> Expr:
    height, width, depth, _ = static_shape(node, node.shape(1), "a kernel")
    at = _windows(node, (height, width))
    channels = node.shape()[at.layout.index("C")]
    (channels,) = static_shape(node, (channels,), "a number of channels")
    if depth == 0 or channels % depth:
        raise node.fail("the channels of the kernel do not divide those of the image",
                        expected=f"a divisor of {channels}", got=str(depth))
    return node.call(op.nn.conv2d, node.input(0), node.input(1), strides=at.strides,
                     padding=at.padding, dilation=at.dilations, groups=channels // depth,
                     data_layout=at.layout, kernel_layout="HWIO")


@converts("DepthwiseConv2dNative", inputs=2, attributes=_IMAGE)
def depthwise_conv2d(node: Node) -> Expr:
    height, width, channels, multiplier = static_shape(node, node.shape(1), "a kernel")
    at = _windows(node, (height, width))
    kernel = node.call(op.reshape, node.input(1),
                       newshape=(height, width, 1, channels * multiplier))
    return node.call(op.nn.conv2d, node.input(0), kernel, strides=at.strides, padding=at.padding,
                     dilation=at.dilations, groups=channels, data_layout=at.layout,
                     kernel_layout="HWIO")


@converts("Conv3D", inputs=2, attributes=_IMAGE)
def conv3d(node: Node) -> Expr:
    kernel = static_shape(node, node.shape(1), "a kernel")
    at = _windows(node, kernel[:3], spatial=3)
    return _in_channels_first(node, at.layout, lambda x: node.call(
        op.nn.conv3d, x, node.call(op.transpose, node.input(1), axes=(4, 3, 0, 1, 2)),
        strides=at.strides, padding=at.padding, dilation=at.dilations))


@converts("Conv2DBackpropInput", inputs=3, attributes=_IMAGE)
def conv2d_transpose(node: Node) -> Expr:
    """The gradient of a convolution by its image, which models use as transposed convolution."""
    image = node.dims(0, "the shape of the image")
    height, width, _, _ = static_shape(node, node.shape(1), "a kernel")
    layout = node.attr("data_format", str, "NHWC")
    sizes = static_shape(node, tuple(image[layout.index(c)] for c in "HW"), "the image")
    forward = _transposed_windows(node, layout, sizes, (height, width))
    out = [(node.shape(2)[layout.index(c)]) for c in "HW"]
    rows = static_shape(node, tuple(out), "a transposed convolution")
    extra = tuple(
        size - ((n - 1) * stride + (k - 1) * dilation + 1 - before - after)
        for size, n, stride, k, dilation, before, after in zip(
            sizes, rows, forward.strides, (height, width), forward.dilations,
            forward.padding[:2], forward.padding[2:], strict=True))
    kernel = node.call(op.transpose, node.input(1), axes=(3, 2, 0, 1))
    x = node.input(2)
    to_first = layout == "NHWC"
    x = node.call(op.transpose, x, axes=(0, 3, 1, 2)) if to_first else x
    y = node.call(op.nn.conv2d_transpose, x, kernel, strides=forward.strides,
                  padding=forward.padding, dilation=forward.dilations, output_padding=extra)
    return node.call(op.transpose, y, axes=(0, 2, 3, 1)) if to_first else y


def _transposed_windows(node: Node, layout: str, sizes: Sequence[int], kernel: Sequence[int]
                        ) -> _Windows:
    """The windows of the convolution whose gradient this is, over an image of ``sizes``."""
    ones = (1,) * 4
    strides = _spatial(node, layout, node.sizes("strides", ones), "strides")
    dilations = _spatial(node, layout, node.sizes("dilations", ones), "dilations")
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padding = node.attr("padding", str)
    if padding == "SAME":
        totals = [max((-(-n // s) - 1) * s + w - n, 0)
                  for n, s, w in zip(sizes, strides, windows, strict=True)]
        pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    elif padding == "VALID":
        pads = (0,) * 4
    else:
        raise node.unsupported("a transposed convolution with this padding", got=padding)
    return _Windows(layout, strides, dilations, pads)


@converts("MaxPool", inputs=1, attributes=_POOL)
def max_pool(node: Node) -> Expr:
    return _pool(node, average=False)


@converts("AvgPool", inputs=1, attributes=_POOL)
def avg_pool(node: Node) -> Expr:
    return _pool(node, average=True)


def _pool(node: Node, *, average: bool) -> Expr:
    """Averages count no padding."""
    layout = node.attr("data_format", str, "NHWC")
    size = _spatial(node, layout, node.sizes("ksize"), "ksize")
    at = _windows(node, size)
    operator = op.nn.avg_pool2d if average else op.nn.max_pool2d
    return node.call(operator, node.input(0), pool_size=size, strides=at.strides,
                     padding=at.padding, layout=at.layout)


@converts("MaxPool3D", "AvgPool3D", inputs=1, attributes=_POOL)
def pool3d(node: Node) -> Expr:
    layout = node.attr("data_format", str, "NDHWC")
    size = _spatial(node, layout, node.sizes("ksize"), "ksize")
    at = _windows(node, size, spatial=3)
    operator = op.nn.avg_pool3d if node.op == "AvgPool3D" else op.nn.max_pool3d
    return _in_channels_first(node, at.layout, lambda x: node.call(
        operator, x, pool_size=size, strides=at.strides, padding=at.padding))


def _in_channels_first(node: Node, layout: str, convert: Callable[[Expr], Expr]) -> Expr:
    """``convert`` applied to the volume with its channels as axis 1."""
    if layout == "NCDHW":
        return convert(node.input(0))
    result = convert(node.call(op.transpose, node.input(0), axes=(0, 4, 1, 2, 3)))
    return node.call(op.transpose, result, axes=(0, 2, 3, 4, 1))
