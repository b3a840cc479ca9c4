"""Convolutions of one to three axes, their gradients written as convolutions again."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.ir.op import Op
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import (
    in_result_dtype,
    known_shape,
    spread_along,
    static_shape,
    to_order,
)
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
    """``dy``, its elements ``strides`` apart, convolved with the kernel flipped along its taps."""
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


def weight_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """The data convolved with ``dy``, with the batch axis as channels.

    Channel (group, c) of the data becomes image c with the channels (group, image).
    """
    taps, groups = static_shape(w, call)[2:], attrs.groups
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
