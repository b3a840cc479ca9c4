"""Two-dimensional convolution whose taps are moved by offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, DType, Expr, RelationContext, TensorType, Tuple, attr, const, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, KnownDim, dim_add, dim_floordiv, dim_mul
from weft.ir.traits import CONTINUOUS, Family, in_family
from weft.op.batching import merging
from weft.op.gradients import align_to_axis, attrs_of, known_shape, numbered, tensor_type
from weft.op.image.sampling_expansion import (
    Tap,
    as_dtype,
    channels_last,
    image_numbers,
    linear_taps,
    sampled,
    size_of,
    typed,
)
from weft.op.nn.conv import padding_attr, steps_attr
from weft.op.relations import (
    output_dtype,
)
from weft.support.dataclass import dataclass
from weft.topi.nn.conv import side_padding
from weft.topi.nn.deformable_conv2d import deformable_conv2d as topi_deformable_conv2d
from weft.topi.nn.window import window_count, window_span


def _groups_attr(doc: str) -> Any:
    return attr(1, doc, check=lambda g: g > 0, expected="1 or more")


@dataclass(frozen=True, kw_only=True)
class DeformableConv2DAttrs(Attrs):
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    padding: tuple[int, ...] = padding_attr(2, "zeros around the data")
    dilation: tuple[int, int] = steps_attr(2, "distance of the taps before they are moved")
    deformable_groups: int = _groups_attr("groups of channels with separate offsets")
    groups: int = _groups_attr("groups of channels convolved apart")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    data, offset, kernel = types
    attrs = ctx.attrs_as(DeformableConv2DAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 4)
        ctx.expect_float(arg, type_)
        ctx.expect_same_dtype(arg, type_, data.dtype)
    outputs, inputs, *taps = kernel.shape
    if not all(isinstance(d, int) and d > 0 for d in kernel.shape):
        ctx.fail("the kernel needs fixed sizes of 1 or more", arg=2, got=kernel)
    for arg, axis, size, groups in ((0, 1, data.shape[1], attrs.groups),
                                    (2, 0, outputs, attrs.groups),
                                    (0, 1, data.shape[1], attrs.deformable_groups)):
        if not isinstance(size, int) or size % groups:
            ctx.fail("the channels do not split into groups", arg=arg, axis=axis,
                     expected=f"a number divisible by {groups}", got=size)
    ctx.expect_dim(2, 1, inputs, dim_floordiv(data.shape[1], attrs.groups),
                   "input channels do not match", why=" (input channels / groups)")
    sizes = []
    for i, (before, after) in enumerate(side_padding(attrs.padding, 2)):
        padded = dim_add(data.shape[2 + i], before + after)
        span = window_span(taps[i], attrs.dilation[i])
        if data.shape[2 + i] == 0 or (isinstance(padded, int) and isinstance(span, int)
                                      and padded < span):
            ctx.fail("the kernel is larger than the padded data", arg=0, axis=2 + i,
                     expected=f"a size of {span} or more", got=padded)
        sizes.append(window_count(padded, span, attrs.strides[i]))
    channels = dim_mul(2 * attrs.deformable_groups, dim_mul(taps[0], taps[1]))
    expected = (data.shape[0], channels, *sizes)
    for axis, (got, size) in enumerate(zip(offset.shape, expected, strict=True)):
        ctx.expect_dim(1, axis, got, size, "the offsets do not fit the windows")
    ctx.output(TensorType((data.shape[0], outputs, *sizes), output_dtype(attrs, data.dtype)))
    return True


@define_op("nn.deformable_conv2d", attrs=DeformableConv2DAttrs, relation=_relation,
           pattern=OpPattern.OUT_FUSABLE, level=5, traits=in_family(Family.RESAMPLING, CONTINUOUS))
def deformable_conv2d(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, attrs: DeformableConv2DAttrs
) -> te.Tensor:
    """A convolution (NCHW, OIHW) that reads each tap between pixels, ``offset`` away.

    Offsets are (N, deformable groups * taps * 2, height, width): for each tap the way down, then
    the way to the right. Beyond the data there are zeros.
    """
    return topi_deformable_conv2d(
        data, offset, kernel, strides=attrs.strides, padding=attrs.padding,
        dilation=attrs.dilation, deformable_groups=attrs.deformable_groups, groups=attrs.groups,
        out_dtype=attrs.out_dtype or data.dtype,
    )


@deformable_conv2d.expansion
def _expansion(call: Call) -> Expr:
    """The samples of all taps, as columns of a matrix product with the kernel."""
    attrs = attrs_of(call, DeformableConv2DAttrs)
    data, _, kernel = call.args
    batch, outputs, height, width = known_shape(call, call)
    _, inputs, rows, columns = known_shape(kernel, call)
    channels, parts = known_shape(data, call)[1], attrs.deformable_groups
    taps = _moved_taps(call, attrs, (rows, columns))
    images = channels_last(data)
    share = dim_floordiv(channels, parts)
    numbers = image_numbers(batch, 5)
    # For each group of channels: (batch, kernel rows, kernel columns, height, width, channels).
    samples = [sampled(_channels(images, g, share), numbers,
                       [[_of_group(tap, g) for tap in along] for along in taps], call)
               for g in range(parts)]
    joined = op.concatenate(Tuple(tuple(samples)), axis=-1) if parts > 1 else samples[0]
    out = attrs.out_dtype or tensor_type(data).dtype
    split = op.reshape(as_dtype(joined, out), newshape=(
        batch, rows, columns, height, width, attrs.groups, inputs), allowzero=True)
    weights = op.reshape(as_dtype(kernel, out), newshape=(
        attrs.groups, dim_floordiv(outputs, attrs.groups), inputs, rows, columns), allowzero=True)
    result = op.einsum(Tuple((split, weights)), equation="nijyxgc,gocij->ngoyx")
    return op.reshape(result, newshape=(batch, outputs, height, width), allowzero=True)


def _moved_taps(call: Call, attrs: DeformableConv2DAttrs, kernel: Sequence[KnownDim]
                ) -> list[list[Tap]]:
    """Along height and width, for (batch, group, kernel rows, kernel columns, height, width)."""
    data, offset, _ = call.args
    batch, _, *windows = known_shape(offset, call)
    dtype = tensor_type(offset).dtype
    moves = op.reshape(offset, newshape=(batch, attrs.deformable_groups, *kernel, 2, *windows),
                       allowzero=True)
    taps = []
    for axis, (before, _) in enumerate(side_padding(attrs.padding, 2)):
        starts = op.multiply(numbered((windows[axis],)), const(attrs.strides[axis], int64))
        steps = op.multiply(numbered((kernel[axis],)), const(attrs.dilation[axis], int64))
        place = op.subtract(op.add(_at_axis(starts, 4 + axis, 6), _at_axis(steps, 2 + axis, 6)),
                            const(before, int64))
        moved = op.squeeze(op.strided_slice(moves, begin=(axis,), end=(axis + 1,), axes=(4,)),
                           axis=(4,))
        at = op.add(op.cast(place, dtype=dtype), moved)
        taps.append(linear_taps(at, size_of(data, 2 + axis, call), is_padded=True))
    return taps


def _at_axis(line: Expr, axis: int, ndim: int) -> Expr:
    """A vector along ``axis`` of ``ndim`` axes, the others of size 1."""
    return op.expand_dims(align_to_axis(line, axis, ndim), axis=0, num_newaxis=axis)


def _channels(images: Expr, group: int, share: Dim) -> Expr:
    return typed(op.strided_slice(images, begin=(group * share,), end=((group + 1) * share,),
                                  axes=(3,)))


def _of_group(tap: Tap, group: int) -> Tap:
    """The tap of one group of channels, without the axis of groups."""

    def cut(x: Expr | None) -> Expr | None:
        return None if x is None else typed(op.squeeze(
            op.strided_slice(x, begin=(group,), end=(group + 1,), axes=(1,)), axis=(1,)))

    index = cut(tap.index)
    return Tap(tap.index if index is None else index, cut(tap.weight), cut(tap.found))


def _pixel(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """All channels of an image between pixels, zeros around it."""
    top, left = int(np.floor(y)), int(np.floor(x))
    total = np.zeros(len(image))
    for i, j in np.ndindex(2, 2):
        row, column = top + i, left + j
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def _reference(
    data: np.ndarray, offset: np.ndarray, kernel: np.ndarray, **values: Any
) -> np.ndarray:
    attrs = DeformableConv2DAttrs(**values)
    (top, _), (left, _) = side_padding(attrs.padding, 2)
    outputs, inputs, rows, columns = kernel.shape
    n, _, height, width = offset.shape
    moved = offset.reshape(n, attrs.deformable_groups, rows, columns, 2, height, width)
    share, per_group = data.shape[1] // attrs.deformable_groups, outputs // attrs.groups
    result = np.zeros((n, outputs, height, width))
    for b, y, x, i, j in np.ndindex(n, height, width, rows, columns):
        pixel = np.concatenate([
            _pixel(data[b, g * share:(g + 1) * share].astype(np.float64),
                   y * attrs.strides[0] - top + i * attrs.dilation[0] + moved[b, g, i, j, 0, y, x],
                   x * attrs.strides[1] - left + j * attrs.dilation[1] + moved[b, g, i, j, 1, y, x])
            for g in range(attrs.deformable_groups)
        ])
        for o in range(outputs):
            first = o // per_group * inputs
            result[b, o, y, x] += pixel[first:first + inputs] @ kernel[o, :, i, j]
    dtype = data.dtype if attrs.out_dtype is None else attrs.out_dtype.numpy
    return result.astype(dtype)


deformable_conv2d.spec(
    _reference,
    op_case((1, 2, 5, 5), (1, 18, 3, 3), (3, 2, 3, 3)),
    op_case((1, 4, 4, 5), (1, 16, 2, 3), (2, 2, 2, 2), strides=(2, 2), padding=(0, 1, 1, 0),
            deformable_groups=2, groups=2, low=-1.5, high=1.5),
)

deformable_conv2d.batching(merging(0, 1))
