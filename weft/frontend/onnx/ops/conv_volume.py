"""Convolution over any number of spatial axes; transposed convolution over one to three."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, Window, check_one_padding
from weft.ir import Expr, Shape
from weft.support.allocation import check_nodes
from weft.support.errors import UnsupportedModelError
from weft.topi.nn.window import window_count, window_span

_CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def convolve(
    node: Node, x: Expr, weight: Expr, window: Window, groups: int, out_dtype: str | None = None
) -> Expr:
    """Convolve over any number of spatial axes.

    With more than three, the first spatial axis (depth) is reduced to a sum of convolutions over
    the remaining axes, one for each kernel index in depth.
    """
    operator = _CONVOLUTIONS.get(len(window.kernel))
    if operator is None:
        if out_dtype is not None:
            x, weight = (node.call(op.cast, v, dtype=out_dtype) for v in (x, weight))
        return _over_depth(node, x, weight, window, groups)
    return node.call(
        operator, x, weight, strides=window.strides, padding=window.padding,
        dilation=window.dilations, groups=groups, channels=tensor_type(weight).shape[0],
        kernel_size=window.kernel, out_dtype=out_dtype,
    )


def _over_depth(node: Node, x: Expr, weight: Expr, window: Window, groups: int) -> Expr:
    x = _padded_depth(node, x, window)
    shape = _fixed(node, x)
    stride, step, taps = window.strides[0], window.dilations[0], window.kernel[0]
    depth = window_count(shape[2], window_span(taps, step), stride)
    rest = Window(window.kernel[1:], window.strides[1:], window.dilations[1:], window.before[1:],
                  window.after[1:])
    check_nodes(8 * taps)
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
    """Convolve every depth slice separately, with depth merged into the batch axis."""
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
    """Convert a transposed convolution over one to three spatial axes."""
    x, weight = node.input(0), node.input(1)
    shape, kernel = tensor_type(x).shape, _fixed(node, weight)
    spatial = len(shape) - 2
    groups = node.attrs.integer("group", 1)
    if len(kernel) != len(shape) or spatial < 1 or groups < 1 or kernel[0] % groups:
        raise node.fail("the shape of the weight does not match the input",
                        got=f"shapes {shape} and {kernel}")
    if spatial not in _TRANSPOSED:
        raise UnsupportedModelError("ConvTranspose over more than three axes", where=node.span,
                                    got=f"{spatial} axes")
    strides, dilations = _checked_attributes(node, kernel)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel[2:], dilations, strict=True))
    pads, extra = _transposed_padding(node, x, strides, spans)
    ends = [after - e for after, e in zip(pads[spatial:], extra, strict=True)]
    result = node.call(
        _TRANSPOSED[spatial], x, weight, strides=strides, dilation=dilations, groups=groups,
        padding=tuple(max(p, 0) for p in (*pads[:spatial], *ends)),
        channels=kernel[1] * groups, kernel_size=kernel[2:],
    )
    result = _with_zeros(node, result, pads[:spatial], ends)
    return node.call(op.nn.bias_add, result, node.input(2), axis=1) if node.has_input(2) else result


def _checked_attributes(node: Node, weight: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Strides and dilations; ``InvalidModelError`` for attributes that do not fit the weight."""
    check_one_padding(node)
    spatial = len(weight) - 2
    stated = node.attrs.integers("kernel_shape")
    if stated is not None and stated != tuple(weight[2:]):
        raise node.fail("kernel_shape differs from the weight", expected=str(tuple(weight[2:])),
                        got=str(stated))
    strides = node.attrs.integers("strides") or (1,) * spatial
    dilations = node.attrs.integers("dilations") or (1,) * spatial
    extra = node.attrs.integers("output_padding") or (0,) * spatial
    lists = {"strides": strides, "dilations": dilations, "output_padding": extra,
             "output_shape": (node.attrs.integers("output_shape") or (1,) * spatial)[-spatial:]}
    for name, values in lists.items():
        if len(values) != spatial or min(values) < (name != "output_padding"):
            raise node.fail(f"attribute {name!r} does not match the input", got=str(values),
                            expected=f"{spatial} numbers, one for each spatial axis")
    if len(node.attrs.integers("pads") or (0,) * 2 * spatial) != 2 * spatial:
        raise node.fail("attribute 'pads' does not match the input",
                        expected=f"{2 * spatial} numbers", got=str(node.attrs.integers("pads")))
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise node.fail("output_padding is too large", got=str(extra),
                        expected="less than the stride or the dilation of its axis")
    return strides, dilations


def _with_zeros(node: Node, x: Expr, before: Sequence[int], after: Sequence[int]) -> Expr:
    """Apply negative padding, which appends zeros to the result."""
    sides = zip(before, after, strict=True)
    width = ((0, 0), (0, 0), *((max(-b, 0), max(-a, 0)) for b, a in sides))
    if not any(map(any, width)):
        return x
    return node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=width)


def _transposed_padding(
    node: Node, x: Expr, strides: tuple[int, ...], spans: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding (all starts, then all ends) and the output padding of each axis."""
    count = len(strides)
    extra = node.attrs.integers("output_padding") or (0,) * count
    mode = node.attrs.text("auto_pad", "NOTSET")
    wanted = node.attrs.integers("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = node.attrs.integers("pads") if mode == "NOTSET" else None
        return pads or (0,) * (2 * count), extra
    if wanted is None:  # size * stride
        total = [e + span - s for s, e, span in zip(strides, extra, spans, strict=True)]
    else:
        sizes = _fixed(node, x)[2:]
        total = [
            s * (n - 1) + e + span - w
            for n, s, e, span, w in zip(sizes, strides, extra, spans, wanted[-count:], strict=True)
        ]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    first, last = (less, more) if mode == "SAME_UPPER" else (more, less)
    return (*first, *last), extra
