"""Convolutions over three spatial axes and transposed ones, from convolutions of images."""

from __future__ import annotations

from functools import reduce

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, Window
from weft.ir.expr import Expr
from weft.ir.shape import Shape
from weft.support.errors import UnsupportedModelError


def convolve(node: Node, x: Expr, weight: Expr, window: Window, groups: int) -> Expr:
    """Over any number of spatial axes: beyond two, one image convolution for each tap in depth."""
    spatial = len(window.kernel)
    if spatial == 1:
        wide = [node.call(op.expand_dims, v, axis=2, num_newaxis=1) for v in (x, weight)]
        result = convolve(node, wide[0], wide[1], window.widened(), groups)
        return node.call(op.squeeze, result, axis=(2,))
    if spatial == 2:
        return node.call(
            op.nn.conv2d,
            x,
            weight,
            strides=window.strides,
            padding=window.padding,
            dilation=window.dilations,
            groups=groups,
            channels=tensor_type(weight).shape[0],
            kernel_size=window.kernel,
        )
    return _over_depth(node, x, weight, window, groups)


def _over_depth(node: Node, x: Expr, weight: Expr, window: Window, groups: int) -> Expr:
    x = _padded_depth(node, x, window)
    shape = _fixed(node, x)
    stride, step, taps = window.strides[0], window.dilations[0], window.kernel[0]
    depth = (shape[2] - (taps - 1) * step - 1) // stride + 1
    rest = Window(window.kernel[1:], window.strides[1:], window.dilations[1:], window.before[1:],
                  window.after[1:])
    parts = []
    for tap in range(taps):
        start = tap * step
        slab = node.call(op.strided_slice, x, begin=(start,),
                         end=(start + (depth - 1) * stride + 1,), strides=(stride,), axes=(2,))
        kernel = node.call(op.strided_slice, weight, begin=(tap,), end=(tap + 1,), strides=(1,),
                           axes=(2,))
        kernel = node.call(op.squeeze, kernel, axis=(2,))
        parts.append(_per_slice(node, slab, kernel, rest, groups))
    return reduce(lambda a, b: node.call(op.add, a, b), parts)


def _per_slice(node: Node, slab: Expr, kernel: Expr, window: Window, groups: int) -> Expr:
    """Every slice in depth convolved for itself: depth joins the batch, and leaves it again."""
    batch, channels, depth, *spatial = tensor_type(slab).concrete_shape
    rank = 3 + len(spatial)
    swapped = (0, 2, 1, *range(3, rank))
    images = node.call(op.transpose, slab, axes=swapped)
    images = reshape_to(node, images, (batch * depth, channels, *spatial))
    result = convolve(node, images, kernel, window, groups)
    _, out, *sizes = tensor_type(result).concrete_shape
    result = reshape_to(node, result, (batch, depth, out, *sizes))
    return node.call(op.transpose, result, axes=swapped)


def _padded_depth(node: Node, x: Expr, window: Window) -> Expr:
    if not window.before[0] and not window.after[0]:
        return x
    rank = len(tensor_type(x).shape)
    width = [(0, 0)] * rank
    width[2] = (window.before[0], window.after[0])
    return node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=tuple(width))


def _fixed(node: Node, x: Expr) -> tuple[int, ...]:
    shape: Shape = tensor_type(x).shape
    sizes = tuple(d for d in shape if isinstance(d, int))
    if len(sizes) < len(shape):
        raise UnsupportedModelError(f"{node.op} of symbolic sizes", where=node.span,
                                    help='fix the sizes: inputs={"x": (1, 3, 224, 224)}')
    return sizes


@converts("ConvTranspose",
          attributes=(*WINDOW_ATTRIBUTES, "group", "output_padding", "output_shape"))
def conv_transpose(node: Node) -> Expr:
    """A convolution of the input spread out with zeros, by the weight turned round."""
    x, weight = node.input(0), node.input(1)
    shape, kernel = _fixed(node, x), _fixed(node, weight)
    spatial = len(shape) - 2
    groups = node.attrs.integer("group", 1)
    if len(kernel) != len(shape) or spatial < 1 or groups < 1 or kernel[0] % groups:
        raise node.fail("the weight does not fit the input", got=f"shapes {shape} and {kernel}")
    strides = node.attrs.integers("strides") or (1,) * spatial
    dilations = node.attrs.integers("dilations") or (1,) * spatial
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel[2:], dilations, strict=True))
    pads, extra = _transposed_padding(node, shape[2:], strides, spans)
    width = [(0, 0), (0, 0)]
    for i, span in enumerate(spans):
        width.append((span - 1 - pads[i], span - 1 - pads[spatial + i] + extra[i]))
    x = _cropped_or_padded(node, _spread_out(node, x, strides), width)
    zeros, ones = (0,) * spatial, (1,) * spatial
    window = Window(kernel[2:], ones, dilations, zeros, zeros)
    result = convolve(node, x, _turned(node, weight, groups), window, groups)
    return node.call(op.nn.bias_add, result, node.input(2), axis=1) if node.has_input(2) else result


def _transposed_padding(
    node: Node, sizes: tuple[int, ...], strides: tuple[int, ...], spans: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut off before and after, and added at the end."""
    count = len(sizes)
    extra = node.attrs.integers("output_padding") or (0,) * count
    mode = node.attrs.text("auto_pad", "NOTSET")
    wanted = node.attrs.integers("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = node.attrs.integers("pads") if mode == "NOTSET" else None
        return pads or (0,) * (2 * count), extra
    if wanted is None:
        wanted = tuple(n * s for n, s in zip(sizes, strides, strict=True))
    total = [
        s * (n - 1) + e + span - w
        for n, s, e, span, w in zip(sizes, strides, extra, spans, wanted[-count:], strict=True)
    ]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    first, last = (less, more) if mode == "SAME_UPPER" else (more, less)
    return (*first, *last), extra


def _spread_out(node: Node, x: Expr, strides: tuple[int, ...]) -> Expr:
    """``stride - 1`` zeros between neighbours along each spatial axis."""
    for axis, stride in enumerate(strides, start=2):
        if stride == 1:
            continue
        shape = _fixed(node, x)
        width = [(0, 0)] * (len(shape) + 1)
        width[axis + 1] = (0, stride - 1)
        x = node.call(op.expand_dims, x, axis=axis + 1, num_newaxis=1)
        x = node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=tuple(width))
        x = reshape_to(node, x, (*shape[:axis], shape[axis] * stride, *shape[axis + 1:]))
        x = node.call(op.strided_slice, x, begin=(0,), end=((shape[axis] - 1) * stride + 1,),
                      strides=(1,), axes=(axis,))
    return x


def _cropped_or_padded(node: Node, x: Expr, width: list[tuple[int, int]]) -> Expr:
    """Negative amounts crop."""
    shape = _fixed(node, x)
    for axis, (before, after) in enumerate(width):
        if before < 0 or after < 0:
            x = node.call(op.strided_slice, x, begin=(max(-before, 0),),
                          end=(shape[axis] - max(-after, 0),), strides=(1,), axes=(axis,))
    positive = tuple((max(b, 0), max(a, 0)) for b, a in width)
    if not any(map(any, positive)):
        return x
    return node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=positive)


def _turned(node: Node, weight: Expr, groups: int) -> Expr:
    """Inputs and outputs of each group swapped, the spatial axes reversed."""
    inputs, outputs, *spatial = _fixed(node, weight)
    rank = 2 + len(spatial)
    for axis in range(2, rank):
        weight = node.call(op.reverse, weight, axis=axis)
    split = reshape_to(node, weight, (groups, inputs // groups, outputs, *spatial))
    swapped = node.call(op.transpose, split, axes=(0, 2, 1, *range(3, rank + 1)))
    return reshape_to(node, swapped, (groups * outputs, inputs // groups, *spatial))
