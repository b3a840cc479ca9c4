"""Read along an axis at given indices: take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import (
    Call,
    DType,
    Expr,
    OpTraits,
    RelationContext,
    TensorType,
    int64,
    linear,
    normalize_axis,
)
from weft.ir.attrs import Attrs, attr, one_of
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, KnownDim, dim_product
from weft.op.batching import moved, with_attrs
from weft.op.gradients import (
    attrs_of,
    clamped,
    known_dim,
    known_shape,
    size_value,
    tensor_type,
    typed_zeros,
)
from weft.support.dataclass import dataclass
from weft.topi import indexing


@dataclass(frozen=True, kw_only=True)
class TakeAttrs(Attrs):
    axis: int | None = attr(None, "axis indexed; None for the elements in row-major order")
    mode: str = attr("clip", "treatment of indices out of range: clamped, or modulo the size",
                     check=one_of("clip", "wrap"), expected='"clip" or "wrap"')


def _take_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, indices = types
    ctx.expect_int(1, indices)
    axis = ctx.attrs_as(TakeAttrs).axis
    if axis is None:
        ctx.output(TensorType(indices.shape, source.dtype))
        return True
    axis = normalize_axis(ctx, axis, source.ndim)
    if source.shape[axis] == 0 and 0 not in indices.shape:
        ctx.fail("cannot take from an empty axis", arg=0, axis=axis,
                 expected="a size of 1 or more", got=0)
    shape = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1:])
    ctx.output(TensorType(shape, source.dtype))
    return True


@define_op("take", attrs=TakeAttrs, relation=_take_relation, pattern=OpPattern.INJECTIVE, level=3,
           traits=linear(OpTraits(takes_blocks=True)))
def take(x: te.Tensor, indices: te.Tensor, attrs: TakeAttrs) -> te.Tensor:
    """``x`` at ``indices`` along an axis, which the axes of ``indices`` replace."""
    axis = None if attrs.axis is None else attrs.axis % x.ndim
    return indexing.take(x, indices, axis, attrs.mode)


def _take_reference(
    x: np.ndarray, indices: np.ndarray, axis: int | None = None, mode: str = "clip"
) -> np.ndarray:
    return np.asarray(np.take(x, indices, axis=axis, mode=mode))  # pyrefly: ignore


take.spec(
    _take_reference,
    op_case((5, 3), np.array([0, 4, 2]), axis=0),
    op_case((2, 4), np.array([[3, 0], [1, -1]], np.int32), axis=1, mode="wrap"),
    op_case((2, 4), np.array([-2, 9]), axis=-1),
    op_case((2, 3), np.array([5, 0])),
    op_case((4, 3), np.int64(2), axis=0),
)


@take.gradient
def _take_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The rows are added up where they come from, in the order of the indices."""
    attrs = attrs_of(call, TakeAttrs)
    x, indices = call.args
    shape, taken = known_shape(x, call), known_shape(indices, call)
    axis = 0 if attrs.axis is None else attrs.axis % len(shape)
    flat = shape if attrs.axis is not None else (known_dim(dim_product(shape), call),)
    size, count = flat[axis], dim_product(taken)
    before, after = dim_product(flat[:axis]), dim_product(flat[axis + 1 :])
    stack = op.reshape(dy, newshape=(before, count, after), allowzero=True)
    rows = op.reshape(_in_order(stack, before), newshape=(count, before * after), allowzero=True)
    at = _in_range(indices, size, attrs.mode, tensor_type(indices).dtype)
    at = op.reshape(at, newshape=(1, count), allowzero=True)
    clear = op.zeros(shape=(size, before * after), dtype=tensor_type(x).dtype)
    added = op.scatter_nd(clear, at, rows, mode="add")
    back = op.reshape(added, newshape=(size, before, after), allowzero=True)
    dx = op.reshape(_in_order(back, before), newshape=shape, allowzero=True)
    return [dx, typed_zeros(indices)]


def _in_order(x: Expr, before: Dim) -> Expr:
    """``x`` with its first two axes exchanged; as it is if the elements would not move."""
    return x if before == 1 else op.transpose(x, axes=(1, 0, 2))


@take.batching
def _take_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """Shared indices select in all examples; indices of each example select in a shared tensor."""
    attrs = attrs_of(call, TakeAttrs)
    x, indices = args
    shape, taken = known_shape(call.args[0], call), known_shape(call.args[1], call)
    if attrs.axis is None:
        shape = (known_dim(dim_product(shape), call),)
        x = op.reshape(x, newshape=(size, *shape) if is_batched[0] else shape, allowzero=True)
    axis = (attrs.axis or 0) % len(shape)
    if not is_batched[1]:
        return with_attrs(call, (x, indices), axis=axis + 1)
    if not is_batched[0]:
        return moved(with_attrs(call, (x, indices), axis=axis), axis, 0,
                     len(shape) + len(taken))
    # The examples one after the other along the axis: positions count from the first of each.
    length = shape[axis]
    joined = moved(x, 0, axis, len(shape) + 1)
    joined = op.reshape(joined, newshape=(*shape[:axis], size * length, *shape[axis + 1:]),
                        allowzero=True)
    at = op.cast(_in_range(indices, length, attrs.mode, tensor_type(call.args[1]).dtype),
                 dtype="int64")
    first = op.arange(start=0, stop=size, dtype="int64")
    first = op.multiply(first, size_value(length, int64))
    if taken:
        first = op.expand_dims(first, axis=1, num_newaxis=len(taken))
    found = op.take(joined, op.add(at, first), axis=axis)
    return moved(found, axis, 0, len(shape) + len(taken))


def _in_range(indices: Expr, size: KnownDim, mode: str, dtype: DType) -> Expr:
    if mode == "wrap":
        return op.floor_mod(indices, size_value(size, dtype))
    return clamped(indices, size, dtype)

take.refer(weight_use="weft.op.nn.constant_weights:of_take",
           shape_value="weft.op.shape_values:gathered")
