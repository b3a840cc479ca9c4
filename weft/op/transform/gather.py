"""Read elements or slices at given indices: gather, gather_nd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, linear, normalize_axis
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, may_be_at_least
from weft.op.batching import all_repeated, along, moved, with_attrs
from weft.op.gradients import attrs_of, clamped, known_shape, tensor_type, typed_zeros
from weft.op.indexing_gradients import gather_gradient
from weft.op.transform.scatter_gradients import clamped_tuples
from weft.support.dataclass import dataclass
from weft.topi import indexing as topi


@dataclass(frozen=True, kw_only=True)
class GatherAttrs(Attrs):
    axis: int = attr(0, "axis along which the indices select")


def _gather_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, indices = types
    ctx.expect_int(1, indices)
    axis = normalize_axis(ctx, ctx.attrs_as(GatherAttrs).axis, source.ndim)
    if indices.ndim != source.ndim:
        ctx.fail("the indices have another rank than the data", arg=1,
                 expected=f"rank {source.ndim}", got=indices)
    for i, (have, size) in enumerate(zip(indices.shape, source.shape, strict=True)):
        if i != axis and not may_be_at_least(size, have):
            ctx.fail("more indices than elements along an axis", arg=1, axis=i,
                     expected=f"{size} or less", got=have)
    if source.shape[axis] == 0 and 0 not in indices.shape:
        ctx.fail("cannot gather from an empty axis", arg=0, axis=axis,
                 expected="a size of 1 or more", got=0)
    ctx.output(TensorType(indices.shape, source.dtype))
    return True


@define_op("gather", attrs=GatherAttrs, relation=_gather_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=linear())
def gather(x: te.Tensor, indices: te.Tensor, attrs: GatherAttrs) -> te.Tensor:
    """``x`` at each index of ``indices``, whose elements replace the index along one axis.

    Indices out of range are clamped.
    """
    return topi.gather(x, indices, attrs.axis % x.ndim)


def _gather_reference(x: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    coords = list(np.indices(indices.shape, sparse=True))
    coords[axis] = np.clip(indices, 0, x.shape[axis] - 1)
    return np.ascontiguousarray(x[tuple(coords)])


gather.spec(
    _gather_reference,
    op_case((3, 4), np.array([[0, 2, 1, 2]]), axis=0),
    op_case((3, 4), np.array([[3, 0], [1, 1], [9, -4]], np.int32), axis=-1),
    op_case((2, 3), np.zeros((0, 3), np.int64)),
)


@gather.gradient
def _gather_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, GatherAttrs)
    x, indices = call.args
    # ``gather`` clamps its indices, while ``scatter_elements`` ignores those out of range.
    positions = clamped(indices, known_shape(x, call)[attrs.axis], tensor_type(indices).dtype)
    return [op.scatter_elements(typed_zeros(x), positions, dy, axis=attrs.axis, reduction="add"),
            typed_zeros(indices)]


@dataclass(frozen=True, kw_only=True)
class GatherNDAttrs(Attrs):
    batch_dims: int = attr(0, "number of leading axes shared by data and indices",
                           check=lambda n: n >= 0, expected="0 or more")


def _gather_nd_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, indices = types
    ctx.expect_int(1, indices)
    batch = ctx.attrs_as(GatherNDAttrs).batch_dims
    length = index_length(ctx, indices, source.ndim - batch)
    for axis in range(batch):
        if axis + 1 < indices.ndim:
            ctx.expect_dim(1, axis + 1, indices.shape[axis + 1], source.shape[axis],
                           "the batch axes of data and indices differ")
    if batch > indices.ndim - 1:
        ctx.fail("the indices lack batch axes", arg=1, expected=f"rank above {batch}",
                 got=indices)
    shape = (*indices.shape[1:], *source.shape[batch + length:])
    if 0 in source.shape[batch:batch + length] and 0 not in shape:
        ctx.fail("cannot gather from an empty axis", arg=0, expected="sizes of 1 or more",
                 got=source)
    ctx.output(TensorType(shape, source.dtype))
    return True


def index_length(ctx: RelationContext, indices: TensorType, limit: int) -> int:
    """The length of the index tuples along axis 0 of ``indices``; at most ``limit``."""
    length = indices.shape[0] if indices.ndim else None
    if not isinstance(length, int) or length > limit:
        ctx.fail("the index tuples do not fit the data", arg=1, axis=0,
                 expected=f"a static size of at most {limit}", got=indices)
        return 0
    return length


@define_op("gather_nd", attrs=GatherNDAttrs, relation=_gather_nd_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=linear())
def gather_nd(x: te.Tensor, indices: te.Tensor, attrs: GatherNDAttrs) -> te.Tensor:
    """The elements or slices of ``x`` at the index tuples along axis 0 of ``indices``.

    Indices out of range are clamped.
    """
    return topi.gather_nd(x, indices, attrs.batch_dims)


def _gather_nd_reference(x: np.ndarray, indices: np.ndarray, batch_dims: int = 0) -> np.ndarray:
    batch = np.indices(indices.shape[1:], sparse=True)[:batch_dims]
    found = [
        np.clip(indices[k], 0, x.shape[batch_dims + k] - 1) for k in range(indices.shape[0])
    ]
    if not found and not batch_dims:
        return np.array(np.broadcast_to(x, (*indices.shape[1:], *x.shape)))
    return np.array(x[(*batch, *found)], order="C")


gather_nd.spec(
    _gather_nd_reference,
    op_case((3, 4), np.array([[0, 2], [1, 3]])),
    op_case((4,), np.array([2])),
    op_case((3, 4, 2), np.array([[0, 2, -1]], np.int32)),
    op_case((2, 3, 4), np.array([[1, 3]]), batch_dims=1),
    op_case((2, 3), np.zeros((2, 0), np.int64)),
)


@gather_nd.gradient
def _gather_nd_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """What was read at one place is added up there."""
    x, indices = call.args
    if attrs_of(call, GatherNDAttrs).batch_dims or 0 in known_shape(x, call):
        return gather_gradient(call, y, dy)
    # ``gather_nd`` clamps its indices, while ``scatter_nd`` drops those out of range.
    _, places = clamped_tuples(x, indices, call)
    return [op.scatter_nd(typed_zeros(x), places, dy, mode="add"), typed_zeros(indices)]


gather.batching(along("axis"))


@gather_nd.batching
def _gather_nd_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The batch is one more shared axis, and the index tuples stay along axis 0."""
    ndim, batch = tensor_type(call.args[1]).ndim, attrs_of(call, GatherNDAttrs).batch_dims
    if not is_batched[0] and not batch:
        return with_attrs(call, (args[0], moved(args[1], 0, 1, ndim + 1)))
    x, indices = all_repeated(call, args, is_batched, size)
    return with_attrs(call, (x, moved(indices, 0, 1, ndim + 1)), batch_dims=batch + 1)

gather.refer(shape_value="weft.op.shape_values:gathered")
