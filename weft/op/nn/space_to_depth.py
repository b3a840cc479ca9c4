"""Pixels to channels and back: space_to_depth, depth_to_space."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, linear, one_of
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import dim_floordiv, dim_mul, may_be_multiple
from weft.op.batching import merging
from weft.op.gradients import known_shape
from weft.op.relations import layout_attr, multiples_help
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import space as topi_space
from weft.topi.nn.conv import data_axes

_NCHW = data_axes("HW")


@dataclass(frozen=True, kw_only=True)
class SpaceToDepthAttrs(Attrs):
    block_size: int = attr(doc="height and width of a block of pixels", check=lambda b: b > 0,
                           expected="1 or more")
    layout: str = attr("NCHW", "layout of the data and the result")


@dataclass(frozen=True, kw_only=True)
class DepthToSpaceAttrs(SpaceToDepthAttrs):
    mode: str = attr("DCR", "order within a channel index: row and column of the block first (DCR)"
                     " or last (CRD)", check=one_of("DCR", "CRD"), expected='"DCR" or "CRD"')


def _images(ctx: RelationContext, source: TensorType) -> Layout:
    layout = layout_attr(ctx, "layout")
    if not layout.is_primal or sorted(layout.primal_axes) != sorted("NCHW"):
        ctx.fail("not an image layout", expected="NCHW, NHWC, ..", got=layout)
    ctx.expect_rank(0, source, 4)
    return layout


def _to_depth_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    layout, block = _images(ctx, source), ctx.attrs_as(SpaceToDepthAttrs).block_size
    shape = list(source.shape)
    for letter in "HW":
        axis = layout.index_of(letter)
        size = shape[axis]
        if not may_be_multiple(size, block):
            ctx.fail("the image is not divisible into blocks", arg=0, axis=axis,
                     expected=f"a size divisible by {block}", got=size,
                     help=multiples_help(size, block))
        shape[axis] = dim_floordiv(size, block)
    axis = layout.index_of("C")
    shape[axis] = dim_mul(shape[axis], block * block)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _to_space_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    layout, block = _images(ctx, source), ctx.attrs_as(DepthToSpaceAttrs).block_size
    shape = list(source.shape)
    axis = layout.index_of("C")
    channels = shape[axis]
    if not may_be_multiple(channels, block * block):
        ctx.fail("the channels are not divisible into blocks", arg=0, axis=axis,
                 expected=f"a number divisible by {block * block}", got=channels,
                 help=multiples_help(channels, block * block))
    shape[axis] = dim_floordiv(channels, block * block)
    for letter in "HW":
        axis = layout.index_of(letter)
        shape[axis] = dim_mul(shape[axis], block)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


@define_op("nn.space_to_depth", attrs=SpaceToDepthAttrs, relation=_to_depth_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def space_to_depth(x: te.Tensor, attrs: SpaceToDepthAttrs) -> te.Tensor:
    """Every block of pixels moved to the channels of one pixel.

    The channel index is (row in the block, column in the block, original channel).
    """
    return topi_space.space_to_depth(x, attrs.block_size, Layout.parse(attrs.layout))


@define_op("nn.depth_to_space", attrs=DepthToSpaceAttrs, relation=_to_space_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def depth_to_space(x: te.Tensor, attrs: DepthToSpaceAttrs) -> te.Tensor:
    """The channels of every pixel moved to a block of pixels; "DCR" undoes space_to_depth."""
    return topi_space.depth_to_space(x, attrs.block_size, Layout.parse(attrs.layout), attrs.mode)


def _to_depth_reference(x: np.ndarray, block_size: int, layout: str = "NCHW") -> np.ndarray:
    images = transform_array(x, Layout.parse(layout), _NCHW)
    n, c, h, w = images.shape
    b = block_size
    split = images.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return transform_array(split.reshape(n, c * b * b, h // b, w // b), _NCHW,
                           Layout.parse(layout))


def _to_space_reference(
    x: np.ndarray, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> np.ndarray:
    images = transform_array(x, Layout.parse(layout), _NCHW)
    n, c, h, w = images.shape
    b = block_size
    left = c // (b * b)
    if mode == "DCR":
        split = images.reshape(n, b, b, left, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = images.reshape(n, left, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return transform_array(split.reshape(n, left, h * b, w * b), _NCHW, Layout.parse(layout))


@space_to_depth.gradient
def _to_depth_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    return [depth_to_space(dy, block_size=attrs.block_size, layout=attrs.layout)]


@depth_to_space.gradient
def _to_space_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    back = space_to_depth(dy, block_size=attrs.block_size, layout=attrs.layout)
    if attrs.mode == "DCR":
        return [back]
    layout, block = Layout.parse(attrs.layout), attrs.block_size
    shape = known_shape(call.args[0], call)
    axis = layout.index_of("C")
    left = shape[axis] // (block * block)
    split = (*shape[:axis], block * block, left, *shape[axis + 1:])
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(split))]
    transposed = get_op("transpose")(get_op("reshape")(back, newshape=split, allowzero=True),
                                 axes=order)
    return [get_op("reshape")(transposed, newshape=shape, allowzero=True)]


space_to_depth.spec(
    _to_depth_reference, op_case((2, 3, 4, 6), block_size=2),
    op_case((1, 3, 6, 2), block_size=3, layout="NHWC"), op_case((0, 1, 2, 2), block_size=2),
)
depth_to_space.spec(
    _to_space_reference, op_case((2, 8, 3, 2), block_size=2),
    op_case((1, 18, 2, 2), block_size=3, mode="CRD"),
    op_case((1, 2, 3, 8), block_size=2, layout="NHWC"),
    op_case((1, 2, 3, 8), block_size=2, layout="NHWC", mode="CRD"),
    op_case((1, 4, 2, 2), block_size=1, dtypes="int32", low=-9, high=9),
)

for _op in (space_to_depth, depth_to_space):
    _op.batching(merging(layout="layout"))
