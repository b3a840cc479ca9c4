"""Parametric ReLU, with a slope per channel."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import CONTINUOUS, Attrs, Call, Expr, RelationContext, attr, normalize_axis
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.op.batching import along_with_parameters
from weft.op.gradients import attrs_of, scalar, tensor_type
from weft.op.layout_inference import along_axis
from weft.op.nn.norm import expect_vector
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, const, select


@dataclass(frozen=True, kw_only=True)
class PReluAttrs(Attrs):
    axis: int = attr(1, "axis of the channels")


def _relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_number(0, data)
    axis = normalize_axis(ctx, ctx.attrs_as(PReluAttrs).axis, data.ndim)
    size = expect_vector(ctx, 1, data, axis, "alpha")
    ctx.output(data)
    return size is not None


@define_op("nn.prelu", attrs=PReluAttrs, relation=_relation, pattern=OpPattern.BROADCAST, level=3,
           traits=CONTINUOUS)
def prelu(data: te.Tensor, alpha: te.Tensor, attrs: PReluAttrs) -> te.Tensor:
    """``data`` where it is positive, else alpha * ``data``, with one alpha per channel."""
    axis = attrs.axis % data.ndim

    def element(*index: PrimExpr) -> PrimExpr:
        value = data[index]
        return select(value > const(0, data.dtype), value, value * alpha[index[axis]])

    return te.compute(data.shape, element, name="prelu")


def _reference(data: np.ndarray, alpha: np.ndarray, axis: int = 1) -> np.ndarray:
    along = [1] * data.ndim
    along[axis] = alpha.size
    return np.where(data > 0, data, data * alpha.reshape(along))


@prelu.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    data, alpha = call.args
    ndim = tensor_type(data).ndim
    axis = attrs_of(call, PReluAttrs).axis % ndim
    where, zero = get_op("where"), scalar(0.0, data)
    positive = get_op("greater")(data, zero)
    slope = get_op("reshape")(alpha, newshape=(-1, *(1,) * (ndim - 1 - axis)))
    others = tuple(a for a in range(ndim) if a != axis)
    share = where(positive, zero, dy * data)
    return [where(positive, dy, dy * slope), get_op("sum")(share, axis=others)]


prelu.layout(along_axis())
prelu.spec(_reference, op_case((2, 3, 4), (3,)), op_case((3, 5), (5,), axis=-1),
           op_case((0, 4), (4,)),
           op_case((2, 3), (3,), dtypes="int32", low=-5, high=5))

prelu.batching(along_with_parameters("axis"))
