"""Layout transformation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Dim, Expr, OpPattern, TensorType, attr, define_op, linear, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.batching import with_attrs
from weft.op.gradients import attrs_of
from weft.op.relations import layout_attr, to_layout
from weft.support.dataclass import dataclass
from weft.topi import transform
from weft.topi.layout import Layout, transform_array


@dataclass(frozen=True, kw_only=True)
class LayoutTransformAttrs(Attrs):
    src_layout: str = attr(doc="layout of the argument", expected="a layout such as NCHW")
    dst_layout: str = attr(doc="layout of the result", expected="a layout such as NCHW16c")


def _layout_transform_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    src, dst = layout_attr(ctx, "src_layout"), layout_attr(ctx, "dst_layout")
    ctx.output(TensorType(to_layout(ctx, src, dst, source.shape, arg=0), source.dtype))
    return True


@define_op("layout_transform", attrs=LayoutTransformAttrs, relation=_layout_transform_relation,
           pattern=OpPattern.INJECTIVE, level=5, traits=linear())
def layout_transform(x: te.Tensor, attrs: LayoutTransformAttrs) -> te.Tensor:
    """``x`` with its axes reordered, split into blocks, and merged, as the two layouts require."""
    return transform.layout_transform(x, Layout.parse(attrs.src_layout),
                                      Layout.parse(attrs.dst_layout))


def _layout_transform_reference(x: np.ndarray, src_layout: str, dst_layout: str) -> np.ndarray:
    return transform_array(x, Layout.parse(src_layout), Layout.parse(dst_layout))


layout_transform.spec(
    _layout_transform_reference,
    op_case((2, 32, 3, 5), src_layout="NCHW", dst_layout="NCHW16c"),
    op_case((2, 2, 3, 5, 16), src_layout="NCHW16c", dst_layout="NCHW"),
    op_case((1, 2, 3, 3, 16), src_layout="NCHW16c", dst_layout="NCHW8c"),
    op_case((1, 2, 3, 3, 4), src_layout="NCHW4c", dst_layout="NHWC"),
    op_case((8, 4, 3, 3), src_layout="OIHW", dst_layout="OIHW2i4o"),
    op_case((4, 1, 3, 3), src_layout="OIHW", dst_layout="OIHW1i4o"),
    op_case((6, 5), src_layout="NK", dst_layout="NK3n"),
)


@layout_transform.identity
def _in_its_layout(call: Call) -> Expr | None:
    attrs = attrs_of(call, LayoutTransformAttrs)
    return call.args[0] if attrs.src_layout == attrs.dst_layout else None


@layout_transform.gradient
def _layout_transform_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, LayoutTransformAttrs)
    return [op.layout_transform(dy, src_layout=attrs.dst_layout, dst_layout=attrs.src_layout)]


@layout_transform.batching
def _layout_transform_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    """One more axis in front, under a letter that the layouts lack."""
    attrs = attrs_of(call, LayoutTransformAttrs)
    letter = next(a for a in "BXYZ" if a not in attrs.src_layout)
    return with_attrs(call, args, src_layout=letter + attrs.src_layout,
                      dst_layout=letter + attrs.dst_layout)
