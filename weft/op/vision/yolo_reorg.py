"""YOLO's reorganization of pixels to channels, in Darknet's order."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, linear
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import dim_floordiv, dim_mul, may_be_multiple
from weft.op.gradients import attrs_of, known_shape
from weft.op.relations import multiples_help
from weft.support.dataclass import dataclass
from weft.topi.transform import reshape, transpose


@dataclass(frozen=True, kw_only=True)
class YoloReorgAttrs(Attrs):
    stride: int = attr(1, "side of the blocks", check=lambda s: s > 0, expected="1 or more")


def _relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_rank(0, data, 4)
    stride = ctx.attrs_as(YoloReorgAttrs).stride
    n, c, h, w = data.shape
    for axis, by in ((1, stride * stride), (2, stride), (3, stride)):
        size = data.shape[axis]
        if not may_be_multiple(size, by):
            ctx.fail("the size is not divisible into blocks", arg=0, axis=axis,
                     expected=f"a size divisible by {by}", got=size,
                     help=multiples_help(size, by))
    ctx.output(TensorType((n, dim_mul(c, stride * stride), dim_floordiv(h, stride),
                           dim_floordiv(w, stride)), data.dtype))
    return True


@define_op("vision.yolo_reorg", attrs=YoloReorgAttrs, relation=_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def yolo_reorg(data: te.Tensor, attrs: YoloReorgAttrs) -> te.Tensor:
    """Blocks of pixels moved to channels, like Darknet's reorg layer.

    The data (N, C, H, W) is read as C / stride**2 channels of stride times the height and width.
    Every stride-th pixel of these, in both directions, makes up C channels of H x W, which are read
    as C * stride**2 channels of 1 / stride of the height and width.
    """
    s = attrs.stride
    n, c, h, w = data.shape
    blocks = reshape(data, (n, c // (s * s), h, s, w, s), "blocks")
    transposed = transpose(blocks, (0, 3, 5, 1, 2, 4))
    return reshape(transposed, (n, c * (s * s), h // s, w // s), "yolo_reorg")


def _reference(data: np.ndarray, stride: int = 1) -> np.ndarray:
    n, c, h, w = data.shape
    large = data.reshape(n, c // stride**2, h * stride, w * stride)
    parts = [large[:, :, i::stride, j::stride] for i in range(stride) for j in range(stride)]
    return np.concatenate(parts, axis=1).reshape(n, c * stride**2, h // stride, w // stride)


@yolo_reorg.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    s = attrs_of(call, YoloReorgAttrs).stride
    shape = n, c, h, w = known_shape(call.args[0], call)
    transposed = get_op("reshape")(dy, newshape=(n, s, s, c // (s * s), h, w), allowzero=True)
    blocks = get_op("transpose")(transposed, axes=(0, 3, 4, 1, 5, 2))
    return [get_op("reshape")(blocks, newshape=shape, allowzero=True)]


yolo_reorg.spec(_reference, op_case((1, 8, 4, 6), stride=2), op_case((2, 3, 2, 2)),
                op_case((0, 4, 2, 2), stride=2))
