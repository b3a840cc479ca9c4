"""Convolutions of one to three axes, their gradients written as convolutions again."""

from __future__ import annotations

import itertools
import math
from typing import Any

from weft import op
from weft.ir import Call, Dim, Expr, Op, Tuple, dim_add, dim_mul, dim_product, dim_sub, typical_size
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import (
    in_result_dtype,
    known_shape,
    scalar,
    spread_along,
    static_shape,
    tensor_type,
    to_order,
)
from weft.op.nn.conv_phases import data_gradient_by_phases
from weft.topi.nn.conv import full_padding, side_padding


@in_result_dtype
def convolution_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    data, kernel = call.args
    images, kernels = "NC" + attrs.spatial, "OI" + attrs.spatial
    x, w = to_order(data, attrs.data_layout, images), to_order(kernel, attrs.kernel_layout, kernels)
    dy = to_order(dy, attrs.result_layout, images)
    dx, dw = data_gradient(x, w, dy, attrs, call), weight_gradient(x, w, dy, attrs, call)
    return [to_order(dx, images, attrs.data_layout), to_order(dw, kernels, attrs.kernel_layout)]


def _convolution_of(axes: int) -> Op:
    return {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[axes]


def data_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """``dy`` convolved with the kernel flipped along its taps, by phases of the strides."""
    sizes, steps = known_shape(x, call)[2:], known_shape(dy, call)[2:]
    fixed = [d for d in (*sizes, *steps) if isinstance(d, int) and d]
    if len(fixed) == 2 * len(sizes):
        befores = [first for first, _ in side_padding(attrs.padding, len(sizes))]
        return data_gradient_by_phases(
            fixed[:len(sizes)], w, dy, attrs, befores, _convolution_of(len(sizes)),
            lambda kernel: infer_expr(_swapped(kernel, attrs.groups, call), trust=True))
    return _spread_data_gradient(x, w, dy, attrs, call)


def _spread_data_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """``dy``, its elements ``strides`` apart, convolved with the flipped kernel.

    For sizes that run time knows, whose phases would differ from run to run.
    """
    sizes, steps = known_shape(x, call)[2:], known_shape(dy, call)[2:]
    taps = static_shape(w, call)[2:]
    axes = tuple(range(2, 2 + len(sizes)))
    wide = dy
    sides = side_padding(attrs.padding, len(sizes))
    for i, (size, tap, step, (first, last)) in enumerate(
            zip(sizes, taps, steps, sides, strict=True)):
        span = (tap - 1) * attrs.dilation[i]
        # Position p of the padded data gets a share of output o at p = o * stride + tap offset.
        # Windows may lie in the padding behind the data alone.
        beyond = max(last - span, 0)
        wide = spread_along(wide, i + 2, span, attrs.strides[i], span + size + first + beyond, step)
        if first or beyond:
            wide = infer_expr(op.strided_slice(wide, begin=(first,), end=(first + span + size,),
                                               axes=(i + 2,)), trust=True)
    # The operator computes a correlation; reversing the taps transposes it.
    flipped = op.strided_slice(w, begin=tuple(t - 1 for t in taps),
                               end=tuple(-t - 1 for t in taps), strides=(-1,) * len(taps),
                               axes=axes)
    swapped = _swapped(infer_expr(flipped, trust=True), attrs.groups, call)
    dx = _convolution_of(len(sizes))(wide, swapped, dilation=attrs.dilation, groups=attrs.groups)
    return infer_expr(dx, trust=True)


def _swapped(w: Expr, groups: int, call: Call) -> Expr:
    """A kernel (O, I / groups, taps…) with inputs and outputs exchanged in each group."""
    outputs, inputs, *taps = static_shape(w, call)
    axes = tuple(range(3, 3 + len(taps)))
    split = op.reshape(w, newshape=(groups, outputs // groups, inputs, *taps),
                       allowzero=True)
    swapped = op.transpose(split, axes=(0, 2, 1, *axes))
    return op.reshape(swapped, newshape=(groups * inputs, outputs // groups, *taps),
                      allowzero=True)


# A convolution with ``dy`` has the images as channels. With few of them and small images its sums
# are short, and a matrix product of copied windows is faster (measured at 7 by 7 and 14 by 14
# on Zen 5 with AVX-512).
FEW_IMAGES, FEW_OUTPUTS = 2, 128


def weight_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """A matrix product over images and outputs, or a convolution of the data with ``dy``."""
    taps, sizes = static_shape(w, call)[2:], known_shape(dy, call)[2:]
    batch = typical_size(known_shape(x, call)[0])
    is_small = batch <= FEW_IMAGES and typical_size(dim_product(sizes)) < FEW_OUTPUTS
    if attrs.groups == 1 and (is_small or all(t == 1 for t in taps)):
        return _weight_gradient_by_gemm(x, taps, dy, attrs)
    return _weight_gradient_by_convolution(x, taps, dy, attrs, call)


def _weight_gradient_by_gemm(
    x: Expr, taps: tuple[int, ...], dy: Expr, attrs: Any
) -> Expr:
    """``dw[O, C * taps] = dy[O, N * outputs] patches[C * taps, N * outputs]T`` (im2col)."""
    batch, channels, *_ = tensor_type(x).shape
    filters, *steps = tensor_type(dy).shape[1:]
    outputs, count = dim_product(tuple(steps)), math.prod(taps)
    padded = _padded(x, attrs, len(taps))
    axes = tuple(range(2, 2 + len(taps)))
    windows = []
    for at in itertools.product(*map(range, taps)):
        begin = tuple(t * d for t, d in zip(at, attrs.dilation, strict=True))
        end = tuple(dim_add(b, dim_add(dim_mul(dim_sub(n, 1), s), 1))
                    for b, n, s in zip(begin, steps, attrs.strides, strict=True))
        windows.append(op.strided_slice(padded, begin=begin, end=end, strides=attrs.strides,
                                        axes=axes))
    patches = windows[0] if count == 1 else op.stack(Tuple(tuple(windows)), axis=2)
    patches = op.reshape(patches, newshape=(batch, dim_mul(channels, count), outputs),
                         allowzero=True)
    grads = op.reshape(dy, newshape=(batch, filters, outputs), allowzero=True)
    product = _product_over_images(infer_expr(grads, trust=True), infer_expr(patches, trust=True))
    dw = op.reshape(product, newshape=(filters, channels, *taps), allowzero=True)
    return infer_expr(dw, trust=True)


def _product_over_images(left: Expr, right: Expr) -> Expr:
    """The sum over images n of ``left[n] right[n]T``: (N, M, K) and (N, L, K) to (M, L)."""
    batch, rows, outputs = tensor_type(left).shape
    columns = tensor_type(right).shape[1]
    if batch != 1 and _stores_less(rows, columns, outputs):
        return op.sum(op.nn.batch_matmul(left, right), axis=(0,))
    flat = [_images_last(x) for x in (left, right)]
    return op.nn.dense(*flat)


def _stores_less(rows: Dim, columns: Dim, outputs: Dim) -> bool:
    """Whether a product for each image is smaller than the operands, which would be copied."""
    m, n, k = (typical_size(d) for d in (rows, columns, outputs))
    return m * n < (m + n) * k


def _images_last(x: Expr) -> Expr:
    """(N, rows, outputs) as (rows, N * outputs)."""
    batch, rows, outputs = tensor_type(x).shape
    ordered = x if batch == 1 else op.transpose(x, axes=(1, 0, 2))
    return op.reshape(ordered, newshape=(rows, dim_mul(batch, outputs)), allowzero=True)


def _padded(x: Expr, attrs: Any, count: int) -> Expr:
    sides = side_padding(attrs.padding, count)
    if not any(map(any, sides)):
        return x
    return op.nn.pad(x, scalar(0.0, x), pad_width=((0, 0), (0, 0), *sides))


def _weight_gradient_by_convolution(
    x: Expr, taps: tuple[int, ...], dy: Expr, attrs: Any, call: Call
) -> Expr:
    """The data convolved with ``dy``, with the batch axis as channels.

    Channel (group, c) of the data becomes image c with the channels (group, image).
    """
    groups = attrs.groups
    axes = tuple(range(2, 2 + len(taps)))
    count, channels, *sizes = known_shape(x, call)
    split = op.reshape(x, newshape=(count, groups, channels // groups, *sizes),
                       allowzero=True)
    swapped = op.transpose(split, axes=(2, 1, 0, *(a + 1 for a in axes)))
    images = op.reshape(swapped, newshape=(channels // groups, groups * count, *sizes),
                        allowzero=True)
    grads = op.transpose(dy, axes=(1, 0, *axes))
    # The taps are ``dilation`` apart in the data, the outputs ``strides``. The taps are the outputs
    # here, so the two are exchanged.
    dw = _convolution_of(len(taps))(images, grads, strides=attrs.dilation, dilation=attrs.strides,
                                  padding=full_padding(attrs.padding, len(taps)), groups=groups)
    # Rows at the edge that no window reached would give further taps.
    cut = op.strided_slice(dw, begin=(0,) * len(taps), end=tuple(taps), axes=axes)
    return infer_expr(op.transpose(cut, axes=(1, 0, *axes)), trust=True)
