"""Global pooling of signals, images and volumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, Relation, RelationContext, TensorType, attr
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.traits import CONTINUOUS, SENSITIVE, Homogeneity, OpTraits, linear
from weft.op.batching import merging
from weft.op.layout_inference import image_layout
from weft.op.nn.pool import layout_of_images
from weft.op.relations import checked, expect_float
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn import pool as topi_pool

_LAYOUT_DOC = "layout of the data and the result"


@dataclass(frozen=True, kw_only=True)
class GlobalPool1DAttrs(Attrs):
    layout: str = attr("NCW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class GlobalPool2DAttrs(Attrs):
    layout: str = attr("NCHW", _LAYOUT_DOC)


@dataclass(frozen=True, kw_only=True)
class GlobalPool3DAttrs(Attrs):
    layout: str = attr("NCDHW", _LAYOUT_DOC)


def _global_relation(spatial: str) -> Relation:
    def relate(ctx: RelationContext) -> bool:
        source = ctx.tensor(0)
        if source is None:
            return False
        layout = layout_of_images(ctx, source, spatial)
        pooled = [layout.index_of(letter) for letter in spatial]
        for axis in pooled:
            if source.shape[axis] == 0:
                ctx.fail("cannot pool an empty axis", arg=0, axis=axis,
                         expected="a size of 1 or more", got=0)
        shape = tuple(1 if i in pooled else d for i, d in enumerate(source.shape))
        ctx.output(TensorType(shape, source.dtype))
        return True

    return relate


def _as_reduction(name: str) -> Callable[[Call], Expr]:
    """A global pool as the reduction ``name`` over the spatial axes, which has a gradient."""

    def expand(call: Call) -> Expr:
        layout = Layout.parse(call.attrs.layout)  # type: ignore[attr-defined]
        axes = tuple(layout.index_of(letter) for letter in "DHW" if layout.has(letter))
        return get_op(name)(call.args[0], axis=axes, keepdims=True)

    return expand


def _global_pool(
    name: str, attrs_type: type[Attrs], spatial: str, relation: Relation,
    compute: Callable[[te.Tensor, Layout, str], te.Tensor], reduce: Callable[..., Any], doc: str,
    cases: tuple[Case, ...], traits: OpTraits, reduction: str,
) -> Op:
    def run(x: te.Tensor, attrs: Any) -> te.Tensor:
        return compute(x, Layout.parse(attrs.layout), spatial)

    def reference(x: np.ndarray, **values: Any) -> np.ndarray:
        layout = Layout.parse(attrs_type.make(values).layout)  # type: ignore[attr-defined]
        axes = tuple(layout.index_of(letter) for letter in spatial)
        return np.asarray(reduce(x, axis=axes, keepdims=True)).astype(x.dtype)

    run.__doc__ = doc
    op = define_op(name, attrs=attrs_type, relation=relation,
                   pattern=OpPattern.OUT_FUSABLE, level=2, inputs=("x",), traits=traits)(run)
    op.layout(image_layout)
    op.expansion(_as_reduction(reduction))
    op.batching(merging(layout="layout"))
    op.refer(permuted="weft.op.permuted:image")
    op.spec(reference, *cases)
    return op


def _pair(axes: int, attrs_type: type[Attrs], spatial: str, cases: tuple[Case, ...]
          ) -> tuple[Op, Op]:
    relation = _global_relation(spatial)
    return (
        _global_pool(f"nn.global_avg_pool{axes}d", attrs_type, spatial,
                     checked(expect_float, relation), topi_pool.global_avg_pool, np.mean,
                     "The mean of each channel of each image.", cases,
                     linear(replace(SENSITIVE, homogeneity=Homogeneity.ANY_SCALE)), "mean"),
        _global_pool(f"nn.global_max_pool{axes}d", attrs_type, spatial, relation,
                     topi_pool.global_max_pool, np.max,
                     "The largest element of each channel of each image.", cases,
                     replace(CONTINUOUS, homogeneity=Homogeneity.POSITIVE), "max"),
    )


global_avg_pool1d, global_max_pool1d = _pair(1, GlobalPool1DAttrs, "W", (
    op_case((2, 3, 5)), op_case((1, 2, 3, 4), layout="NCW4c"), op_case((1, 3, 2), layout="NWC"),
))
global_avg_pool2d, global_max_pool2d = _pair(2, GlobalPool2DAttrs, "HW", (
    op_case((2, 3, 4, 5)), op_case((1, 2, 3, 3, 4), layout="NCHW4c"),
    op_case((1, 3, 4, 2), layout="NHWC"),
))
global_avg_pool3d, global_max_pool3d = _pair(3, GlobalPool3DAttrs, "DHW", (
    op_case((2, 3, 2, 3, 4)), op_case((1, 2, 3, 2), layout="CDHW"),
    op_case((1, 2, 3, 2, 2), layout="NDHWC"),
))
