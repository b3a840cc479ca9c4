"""The gradient of a two-dimensional convolution with regard to its kernel, as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import CONVOLUTION, Attrs, Call, DType, Expr, TensorType, attr, infer_expr
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, dim_add, dim_floordiv
from weft.ir.typing.relation import RelationContext
from weft.op.batching import all_repeated, moved, with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type
from weft.op.nn.conv import padding_attr, positive, steps_attr
from weft.op.nn.conv_gradients import data_gradient
from weft.op.nn.conv_reference import pad_spatial, windows
from weft.op.relations import (
    output_dtype,
)
from weft.support.dataclass import dataclass
from weft.topi.nn.conv import conv2d_backward_weight as topi_backward_weight
from weft.topi.nn.conv import full_padding, side_padding
from weft.topi.nn.window import window_count, window_span


@dataclass(frozen=True, kw_only=True)
class Conv2DBackwardWeightAttrs(Attrs):
    kernel_size: tuple[int, int] = attr(doc="height and width of the kernel", check=positive,
                                        expected="two numbers >= 1")
    strides: tuple[int, int] = steps_attr(2, "steps of the convolution")
    padding: tuple[int, ...] = padding_attr(2, "zeros around the data")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps")
    groups: int = attr(1, "groups of channels convolved apart", check=lambda g: g > 0,
                       expected="1 or more")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    grad, data = types
    attrs = ctx.attrs_as(Conv2DBackwardWeightAttrs)
    for arg, type_ in enumerate((grad, data)):
        ctx.expect_rank(arg, type_, 4)
        ctx.expect_float(arg, type_)
    ctx.expect_same_dtype(1, data, grad.dtype)
    ctx.expect_dim(0, 0, grad.shape[0], data.shape[0], "the batches differ")
    for i, (before, after) in enumerate(side_padding(attrs.padding, 2)):
        padded = dim_add(data.shape[2 + i], before + after)
        span = window_span(attrs.kernel_size[i], attrs.dilation[i])
        ctx.expect_dim(0, 2 + i, grad.shape[2 + i], window_count(padded, span, attrs.strides[i]),
                       "the gradient does not fit the data", why=" (the windows of the data)")
    outputs, inputs = grad.shape[1], data.shape[1]
    for arg, channels in enumerate((outputs, inputs)):
        if not isinstance(channels, int) or channels % attrs.groups:
            ctx.fail("the channels do not split into groups", arg=arg, axis=1,
                     expected=f"a number divisible by groups = {attrs.groups}", got=channels)
    shape = (outputs, dim_floordiv(inputs, attrs.groups), *attrs.kernel_size)
    ctx.output(TensorType(shape, output_dtype(attrs, data.dtype)))
    return True


@define_op("nn.conv2d_backward_weight", attrs=Conv2DBackwardWeightAttrs, relation=_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2, traits=CONVOLUTION)
def conv2d_backward_weight(
    grad: te.Tensor, data: te.Tensor, attrs: Conv2DBackwardWeightAttrs
) -> te.Tensor:
    """The gradient of a kernel (OIHW) from that of the result (NCHW) and the data (NCHW).

    out[o, c, i, j] = sum over n, y, x of grad[n, o, y, x] * data[n, c, y * s0 + i * d0 - top,
    x * s1 + j * d1 - left], where o sees the channels c of its group.
    """
    return topi_backward_weight(
        grad, data, kernel_size=attrs.kernel_size, strides=attrs.strides, padding=attrs.padding,
        dilation=attrs.dilation, groups=attrs.groups, out_dtype=attrs.out_dtype or data.dtype,
    )


@conv2d_backward_weight.decomposition
def _as_convolution(call: Call) -> Expr | None:
    """The data convolved with the gradient, images and channels exchanged."""
    attrs: Any = call.attrs
    if attrs.groups > 1:
        return None
    grad, data = call.args
    transpose, order = get_op("transpose"), (1, 0, 2, 3)
    # The taps are the outputs of this convolution, so strides and dilation are exchanged.
    taps = get_op("nn.conv2d")(
        transpose(data, axes=order), transpose(grad, axes=order), strides=attrs.dilation,
        dilation=attrs.strides, padding=full_padding(attrs.padding, 2), out_dtype=attrs.out_dtype,
        span=call.span,
    )
    # Rows at the edge that no window reached would give further taps.
    cut = get_op("strided_slice")(taps, begin=(0, 0), end=attrs.kernel_size, axes=(2, 3))
    return transpose(cut, axes=order)


@conv2d_backward_weight.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The operator is linear in both operands, and ``dy`` is a kernel.

    The gradient of ``grad`` is the convolution of the data with it, that of the data the gradient
    of that convolution.
    """
    attrs = attrs_of(call, Conv2DBackwardWeightAttrs)
    grad, data = call.args
    dtype = tensor_type(data).dtype
    kernel = infer_expr(dy if attrs.out_dtype in (None, dtype) else
                        get_op("cast")(dy, dtype=dtype), trust=True)
    forward = get_op("nn.conv2d")(data, kernel, strides=attrs.strides, padding=attrs.padding,
                                  dilation=attrs.dilation, groups=attrs.groups)
    return [forward, data_gradient(data, kernel, grad, attrs, call)]


def _reference(grad: np.ndarray, data: np.ndarray, **values: Any) -> np.ndarray:
    attrs = Conv2DBackwardWeightAttrs(**values)
    padded = pad_spatial(data.astype(np.float64), full_padding(attrs.padding, 2))
    taps = windows(padded, attrs.kernel_size, attrs.strides, attrs.dilation)
    n, channels, rows, columns = taps.shape[:4]
    grouped = taps.reshape(n, attrs.groups, channels // attrs.groups, *taps.shape[2:])
    dy = grad.reshape(n, attrs.groups, grad.shape[1] // attrs.groups, rows, columns)
    result = np.einsum("ngoyx,ngcyxij->gocij", dy, grouped)
    dtype = data.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
    return result.reshape(grad.shape[1], channels // attrs.groups,
                          *attrs.kernel_size).astype(dtype)


conv2d_backward_weight.spec(
    _reference,
    op_case((2, 3, 4, 4), (2, 2, 6, 6), kernel_size=(3, 3)),
    op_case((1, 4, 3, 3), (1, 2, 6, 5), kernel_size=(3, 2), strides=(2, 2), padding=(1, 0, 0, 1)),
    op_case((1, 4, 3, 4), (1, 4, 5, 4), kernel_size=(2, 1), dilation=(2, 1), groups=2),
)


@conv2d_backward_weight.batching
def _weight_of_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """A kernel for each example: the channels of an example are groups of their own."""
    attrs: Any = call.attrs
    if not isinstance(size, int):
        return None
    joined = []
    for x, example in zip(all_repeated(call, args, is_batched, size), call.args, strict=True):
        images, channels, *rest = known_shape(example, call)
        joined.append(op.reshape(moved(x, 0, 1, 5), newshape=(images, size * channels, *rest),
                                 allowzero=True))
    result = with_attrs(call, joined, groups=attrs.groups * size)
    return op.reshape(result, newshape=(size, *known_shape(call, call)), allowzero=True)
