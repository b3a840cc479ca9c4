"""Normalization by the root mean square, and by the Euclidean norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Dim, Expr, OpPattern, attr, const, define_op, get_op, op_case
from weft.ir.traits import CONTINUOUS, Family, in_family
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import normalize_axes, normalize_axis
from weft.op.batching import along_with_parameters, shifted_axes, with_attrs
from weft.op.gradients import attrs_of, tensor_type
from weft.op.layout_inference import along_axis
from weft.op.nn.group_norm import epsilon_attr
from weft.op.nn.norm import expect_vector
from weft.support.dataclass import dataclass
from weft.topi.nn import norm as topi_norm


@dataclass(frozen=True, kw_only=True)
class RmsNormAttrs(Attrs):
    axis: int = attr(-1, "axis normalised over")
    epsilon: float = epsilon_attr()


def _rms_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    axis = normalize_axis(ctx, ctx.attrs_as(RmsNormAttrs).axis, data.ndim)
    size = expect_vector(ctx, 1, data, axis, "weight")
    ctx.output(data)
    return size is not None


@define_op("nn.rms_norm", attrs=RmsNormAttrs, relation=_rms_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, CONTINUOUS))
def rms_norm(data: te.Tensor, weight: te.Tensor, attrs: RmsNormAttrs) -> te.Tensor:
    """``data`` / sqrt(mean of its squares along an axis + epsilon) * ``weight``"""
    return topi_norm.rms_norm(data, weight, axis=attrs.axis % data.ndim, epsilon=attrs.epsilon)


def _rms_reference(
    data: np.ndarray, weight: np.ndarray, axis: int = -1, epsilon: float = 1e-5
) -> np.ndarray:
    wide = data.astype(np.float64)
    square = np.square(wide).mean(axis=axis, keepdims=True)
    along = [1] * data.ndim
    along[axis] = weight.size
    return (wide / np.sqrt(square + epsilon) * weight.reshape(along)).astype(data.dtype)


@rms_norm.expansion
def _expand_rms_norm(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    data, weight = call.args
    type_ = tensor_type(data)
    axis, multiply = attrs.axis % type_.ndim, get_op("multiply")
    square = get_op("mean")(multiply(data, data), axis=(axis,), keepdims=True)
    scale = get_op("rsqrt")(get_op("add")(square, const(attrs.epsilon, type_.dtype)))
    along = (-1, *(1,) * (type_.ndim - 1 - axis))
    return multiply(multiply(data, scale), get_op("reshape")(weight, newshape=along))


rms_norm.layout(along_axis())
rms_norm.spec(
    _rms_reference,
    op_case((3, 7), (7,)),
    op_case((2, 3, 4), (3,), axis=1, epsilon=1e-3),
    op_case((0, 4), (4,)),
)


@dataclass(frozen=True, kw_only=True)
class L2NormalizeAttrs(Attrs):
    eps: float = attr(1e-12, "minimum of the squared norm", check=lambda e: e > 0,
                      expected="a number > 0")
    axis: tuple[int, ...] | int = attr((1,), "axes of the norm")


def _l2_axes(axis: tuple[int, ...] | int, ndim: int) -> tuple[int, ...]:
    return tuple(a % ndim for a in ((axis,) if isinstance(axis, int) else axis))


def _l2_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    axis = ctx.attrs_as(L2NormalizeAttrs).axis
    normalize_axes(ctx, (axis,) if isinstance(axis, int) else axis, data.ndim)
    ctx.output(data)
    return True


@define_op("nn.l2_normalize", attrs=L2NormalizeAttrs, relation=_l2_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2, traits=in_family(Family.REDUCTION, CONTINUOUS))
def l2_normalize(data: te.Tensor, attrs: L2NormalizeAttrs) -> te.Tensor:
    """``data`` / sqrt(max(sum of its squares along axes, eps))"""
    return topi_norm.l2_normalize(data, axes=_l2_axes(attrs.axis, data.ndim), epsilon=attrs.eps)


def _l2_reference(
    data: np.ndarray, eps: float = 1e-12, axis: tuple[int, ...] | int = (1,)
) -> np.ndarray:
    wide = data.astype(np.float64)
    total = np.square(wide).sum(axis=_l2_axes(axis, data.ndim), keepdims=True)
    return (wide / np.sqrt(np.maximum(total, eps))).astype(data.dtype)


@l2_normalize.expansion
def _expand_l2_normalize(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    data = call.args[0]
    type_ = tensor_type(data)
    axes = _l2_axes(attrs.axis, type_.ndim)
    total = get_op("sum")(get_op("multiply")(data, data), axis=axes, keepdims=True)
    least = get_op("maximum")(total, const(attrs.eps, type_.dtype))
    return get_op("multiply")(data, get_op("rsqrt")(least))


l2_normalize.spec(
    _l2_reference,
    op_case((2, 3, 4)),
    op_case((3, 4, 2), axis=(-1, 0), eps=0.5),
    op_case((3, 5), axis=-1),
    op_case((0, 4)),
)


rms_norm.batching(along_with_parameters("axis"))
rms_norm.refer(column_factors="weft.op.nn.constant_weights:SCALE")


@l2_normalize.batching
def _l2_each(call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim) -> Expr:
    ndim = tensor_type(call).ndim
    axes = _l2_axes(attrs_of(call, L2NormalizeAttrs).axis, ndim)
    return with_attrs(call, args, axis=shifted_axes(axes, ndim))
