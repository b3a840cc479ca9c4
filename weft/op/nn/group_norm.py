"""Group normalization and instance normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import ANY, Attrs, Call, Expr, RelationContext, attr, const, has_any, may_be_multiple
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.traits import CONTINUOUS, Family, in_family
from weft.ir.typing.relations import normalize_axis
from weft.op.batching import merging
from weft.op.gradients import tensor_type
from weft.op.nn.norm import expect_vector
from weft.op.relations import multiples_help
from weft.support.dataclass import dataclass
from weft.tir.expr import const as tir_const
from weft.topi.nn import norm as topi_norm


def epsilon_attr() -> Any:
    return attr(1e-5, "added to the variance", check=lambda e: e >= 0, expected="a number >= 0")


@dataclass(frozen=True, kw_only=True)
class InstanceNormAttrs(Attrs):
    axis: int = attr(1, "axis of the channels")
    epsilon: float = epsilon_attr()
    center: bool = attr(True, "add beta")
    scale: bool = attr(True, "multiply by gamma")


@dataclass(frozen=True, kw_only=True)
class GroupNormAttrs(InstanceNormAttrs):
    num_groups: int = attr(doc="number of groups of channels",
                           check=lambda n: n > 0, expected="1 or more")


def _norm_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_float(0, data)
    ctx.expect_min_rank(0, data, 2)
    attrs = ctx.attrs_as(InstanceNormAttrs)
    axis = normalize_axis(ctx, attrs.axis, data.ndim)
    if axis == 0:
        ctx.fail("axis 0 is the batch axis", expected="another axis for the channels",
                 got=attrs.axis)
    channels = data.shape[axis]
    if isinstance(attrs, GroupNormAttrs) and (
            channels is ANY or not may_be_multiple(channels, attrs.num_groups)):
        ctx.fail("the channels are not divisible into groups", arg=0, axis=axis,
                 expected=f"a number divisible by num_groups = {attrs.num_groups}", got=channels,
                 help=multiples_help(channels, attrs.num_groups))
    sizes = [expect_vector(ctx, i, data, axis, n) for i, n in ((1, "gamma"), (2, "beta"))]
    ctx.output(data)
    return None not in sizes


@define_op("nn.group_norm", attrs=GroupNormAttrs, relation=_norm_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, CONTINUOUS))
def group_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: GroupNormAttrs
) -> te.Tensor:
    """Each group of channels of each batch element normalised, times gamma, plus beta.

    Mean and variance are over the channels of the group and all axes but the batch (axis 0).
    """
    axis = attrs.axis % data.ndim
    return topi_norm.group_norm(
        data, gamma, beta, group_size=data.shape[axis] // attrs.num_groups, axis=axis,
        epsilon=attrs.epsilon, center=attrs.center, scale=attrs.scale,
    )


@define_op("nn.instance_norm", attrs=InstanceNormAttrs, relation=_norm_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, CONTINUOUS))
def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, attrs: InstanceNormAttrs
) -> te.Tensor:
    """Each channel of each batch element normalised, times gamma, plus beta."""
    return topi_norm.group_norm(
        data, gamma, beta, group_size=tir_const(1), axis=attrs.axis % data.ndim,
        epsilon=attrs.epsilon, center=attrs.center, scale=attrs.scale,
    )


def _group_reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, num_groups: int, axis: int = 1,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> np.ndarray:
    x = np.moveaxis(data, axis, 1).astype(np.float64)
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    over = tuple(range(2, grouped.ndim))
    centred = grouped - grouped.mean(axis=over, keepdims=True)
    variance = np.square(centred).mean(axis=over, keepdims=True)
    normal = (centred / np.sqrt(variance + epsilon)).reshape(x.shape)
    along = (-1, *(1,) * (x.ndim - 2))
    normal = normal * gamma.reshape(along) if scale else normal
    normal = normal + beta.reshape(along) if center else normal
    return np.ascontiguousarray(np.moveaxis(normal, 1, axis).astype(data.dtype))


def _instance_reference(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: int = 1, **values: Any
) -> np.ndarray:
    return _group_reference(data, gamma, beta, data.shape[axis], axis, **values)


@instance_norm.expansion
@group_norm.expansion
def _expand_group_norm(call: Call) -> Expr | None:
    """Arithmetic over a separate axis for the groups."""
    attrs: Any = call.attrs
    data, gamma, beta = call.args
    type_ = tensor_type(data)
    axis, dtype = attrs.axis % type_.ndim, type_.dtype
    channels = type_.shape[axis]
    if has_any(type_.shape):
        return None
    groups, each = channels, 1  # of instance norm, whose number of channels may be a symbol
    if isinstance(attrs, GroupNormAttrs):
        if not isinstance(channels, int):
            return None
        groups, each = attrs.num_groups, channels // attrs.num_groups
    shape = (*type_.shape[:axis], groups, each, *type_.shape[axis + 1:])
    over = tuple(i for i in range(1, len(shape)) if i != axis)
    x = get_op("reshape")(data, newshape=shape, allowzero=True)
    normal = _standardised(x, over, const(attrs.epsilon, dtype))
    result = get_op("reshape")(normal, newshape=type_.shape, allowzero=True)
    along = (channels, *(1,) * (type_.ndim - 1 - axis))
    if attrs.scale:
        result = get_op("multiply")(result, get_op("reshape")(gamma, newshape=along))
    if attrs.center:
        result = get_op("add")(result, get_op("reshape")(beta, newshape=along))
    return result


def _standardised(x: Expr, over: Sequence[int], epsilon: Expr) -> Expr:
    """``x`` normalised to mean 0 and variance 1 over some axes."""
    mean, multiply = get_op("mean"), get_op("multiply")
    centred = get_op("subtract")(x, mean(x, axis=tuple(over), keepdims=True))
    variance = mean(multiply(centred, centred), axis=tuple(over), keepdims=True)
    return multiply(centred, get_op("rsqrt")(get_op("add")(variance, epsilon)))


group_norm.spec(
    _group_reference,
    op_case((2, 6, 3, 4), (6,), (6,), num_groups=3),
    op_case((1, 4, 5), (4,), (4,), num_groups=1, epsilon=1e-3),
    op_case((2, 3, 4), (4,), (4,), num_groups=2, axis=-1, center=False),
    op_case((2, 3), (3,), (3,), num_groups=1, scale=False),
    op_case((0, 4, 3), (4,), (4,), num_groups=2),
)
instance_norm.spec(
    _instance_reference,
    op_case((2, 3, 4, 5), (3,), (3,)),
    op_case((1, 4, 3, 2), (2,), (2,), axis=-1, scale=False),
    op_case((2, 3, 7), (3,), (3,), epsilon=0.01, center=False),
)


for _op in (group_norm, instance_norm):
    _op.batching(merging(0))
