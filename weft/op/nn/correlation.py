"""Correlation of two feature maps at displacements, as in FlowNet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Dim, Expr, TensorType, Tuple, attr, dim_add, infer_expr
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.batching import merging
from weft.op.gradients import attrs_of, known_shape, scalar
from weft.op.nn.conv import padding_attr
from weft.op.nn.conv_reference import pad_spatial, windows
from weft.support.dataclass import dataclass
from weft.topi.nn.conv import full_padding, side_padding
from weft.topi.nn.correlation import correlation as topi_correlation
from weft.topi.nn.window import window_count


def _step_attr(doc: str) -> Any:
    return attr(1, doc, check=lambda n: n > 0, expected="1 or more")


@dataclass(frozen=True, kw_only=True)
class CorrelationAttrs(Attrs):
    kernel_size: int = attr(1, "side of the compared windows",
                            check=lambda k: k > 0 and k % 2 == 1, expected="an odd number")
    max_displacement: int = attr(1, "maximum displacement of the second map",
                                 check=lambda d: d >= 0,
                                 expected="0 or more")
    stride1: int = _step_attr("distance of the windows in the first map")
    stride2: int = _step_attr("distance of the displacements")
    padding: tuple[int, ...] = padding_attr(2, "zeros around both maps")
    is_multiply: bool = attr(True, "multiply, instead of the absolute difference")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    a, b = types
    attrs = ctx.attrs_as(CorrelationAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 4)
        ctx.expect_float(arg, type_)
    ctx.expect_same_dtype(1, b, a.dtype)
    for axis in range(4):
        ctx.expect_dim(1, axis, b.shape[axis], a.shape[axis], "the maps have different shapes")
    if a.shape[1] == 0:
        ctx.fail("the number of channels is 0", arg=0, axis=1, expected="1 or more", got=0)
    span = 2 * (attrs.max_displacement + (attrs.kernel_size - 1) // 2) + 1
    sizes = []
    for i, (before, after) in enumerate(side_padding(attrs.padding, 2)):
        padded = dim_add(a.shape[2 + i], before + after)
        if isinstance(padded, int) and padded < span:
            ctx.fail("windows and displacements exceed the padded data", arg=0, axis=2 + i,
                     expected=f"a size of {span} or more", got=padded)
        sizes.append(window_count(padded, span, attrs.stride1))
    shifts = 2 * (attrs.max_displacement // attrs.stride2) + 1
    ctx.output(TensorType((a.shape[0], shifts * shifts, *sizes), a.dtype))
    return True


@define_op("nn.correlation", attrs=CorrelationAttrs, relation=_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def correlation(data1: te.Tensor, data2: te.Tensor, attrs: CorrelationAttrs) -> te.Tensor:
    """The mean product of windows of one map (NCHW) with those of another, per displacement.

    The channels of the result are the displacements in row-major order.
    """
    return topi_correlation(
        data1, data2, kernel_size=attrs.kernel_size, max_displacement=attrs.max_displacement,
        stride1=attrs.stride1, stride2=attrs.stride2, padding=attrs.padding,
        is_multiply=attrs.is_multiply,
    )


@correlation.expansion
def _expansion(call: Call) -> Expr:
    """For each displacement, the product of slices, its mean over channels and over windows."""
    attrs = attrs_of(call, CorrelationAttrs)
    most, step = attrs.max_displacement, attrs.stride2
    padded = [_padded(x, attrs) for x in call.args]
    sizes = [size - 2 * most for size in known_shape(padded[0], call)[2:]]
    first = _shifted(padded[0], (most, most), sizes)
    reach = most // step
    shifts = itertools.product(range(-reach, reach + 1), repeat=2)
    parts = []
    for down, across in shifts:
        second = _shifted(padded[1], (most + down * step, most + across * step), sizes)
        value = (op.multiply(first, second) if attrs.is_multiply else
                 op.abs(op.subtract(first, second)))
        parts.append(op.mean(value, axis=(1,), keepdims=True))
    every = op.concatenate(Tuple(tuple(parts)), axis=1)
    return op.nn.avg_pool2d(every, pool_size=(attrs.kernel_size,) * 2,
                            strides=(attrs.stride1,) * 2)


def _padded(x: Expr, attrs: CorrelationAttrs) -> Expr:
    pads = ((0, 0), (0, 0), *side_padding(attrs.padding, 2))
    return infer_expr(op.nn.pad(x, scalar(0.0, x), pad_width=pads), trust=True)


def _shifted(x: Expr, first: tuple[int, int], sizes: Sequence[Dim]) -> Expr:
    end = tuple(at + size for at, size in zip(first, sizes, strict=True))
    return infer_expr(op.strided_slice(x, begin=first, end=end, axes=(2, 3)), trust=True)


def _reference(a: np.ndarray, b: np.ndarray, **values: Any) -> np.ndarray:
    attrs = CorrelationAttrs(**values)
    size, most = (attrs.kernel_size,) * 2, attrs.max_displacement
    first, second = (windows(pad_spatial(x.astype(np.float64), full_padding(attrs.padding, 2)),
                             size, (1, 1), (1, 1)) for x in (a, b))
    rows, columns = first.shape[2] - 2 * most, first.shape[3] - 2 * most
    reach = most // attrs.stride2
    parts = []
    for dy, dx in np.ndindex(2 * reach + 1, 2 * reach + 1):
        down, across = (most + (d - reach) * attrs.stride2 for d in (dy, dx))
        left = first[:, :, most:most + rows, most:most + columns]
        right = second[:, :, down:down + rows, across:across + columns]
        value = left * right if attrs.is_multiply else np.abs(left - right)
        parts.append(value.mean(axis=(1, 4, 5))[:, ::attrs.stride1, ::attrs.stride1])
    return np.stack(parts, axis=1).astype(a.dtype)


correlation.spec(
    _reference,
    op_case((1, 3, 6, 7), (1, 3, 6, 7), max_displacement=2),
    op_case((2, 2, 7, 6), (2, 2, 7, 6), kernel_size=3, max_displacement=2, stride1=2, stride2=2,
            padding=(1, 2)),
    op_case((1, 2, 4, 4), (1, 2, 4, 4), max_displacement=1, is_multiply=False, padding=(1,)),
)

correlation.batching(merging(0, 1))
