"""Write elements or slices at given indices: scatter_elements, scatter_nd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Constant, Dim, Expr, OpTraits, attr, int64, may_be_at_least, one_of
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import normalize_axis
from weft.op.batching import all_repeated, along, batch_numbers, moved, with_attrs
from weft.op.cut_axes import slice_axes
from weft.op.gradients import (
    attrs_of,
    clamped,
    known_shape,
    numbered,
    scalar,
    tensor_type,
    typed_zeros,
)
from weft.op.indexing_gradients import write_gradient
from weft.op.transform.gather import index_length
from weft.op.transform.scatter_gradients import (
    Places,
    add_gradient,
    extreme_gradient,
    mul_gradient,
    places_of_tuples,
)
from weft.support.dataclass import dataclass
from weft.topi import indexing as topi

_MODES = ("update", "add", "mul", "min", "max")
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, new: new, "add": np.add, "mul": np.multiply, "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True, kw_only=True)
class ScatterElementsAttrs(Attrs):
    axis: int = attr(0, "axis along which the indices select")
    reduction: str = attr("update", "combination of a value with the one already there",
                          check=one_of(*_MODES), expected=", ".join(_MODES))


def _scatter_elements_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    source, indices, updates = types
    ctx.expect_int(1, indices)
    ctx.expect_same_dtype(2, updates, source.dtype)
    axis = normalize_axis(ctx, ctx.attrs_as(ScatterElementsAttrs).axis, source.ndim)
    for arg, type_ in ((1, indices), (2, updates)):
        if type_.ndim != source.ndim:
            ctx.fail("the argument has another rank than the data", arg=arg,
                     expected=f"rank {source.ndim}", got=type_)
    for i, size in enumerate(indices.shape):
        ctx.expect_dim(2, i, updates.shape[i], size, "updates and indices differ in shape")
        limit = source.shape[i]
        if i != axis and not may_be_at_least(limit, size):
            ctx.fail("more indices than elements along an axis", arg=1, axis=i,
                     expected=f"{limit} or less", got=size)
    ctx.output(source)
    return True


@define_op("scatter_elements", attrs=ScatterElementsAttrs, relation=_scatter_elements_relation,
           pattern=OpPattern.OPAQUE, level=3, traits=OpTraits(updates_first=True))
def scatter_elements(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, attrs: ScatterElementsAttrs
) -> te.Tensor:
    """``x`` with each element of ``updates`` written to its index, replaced along one axis.

    Elements are written in row-major order; those with an index out of range are dropped.
    """
    return topi.scatter_elements(x, indices, updates, attrs.axis % x.ndim, attrs.reduction)


def _scatter_elements_reference(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0,
    reduction: str = "update",
) -> np.ndarray:
    result = np.array(x)
    for position in np.ndindex(indices.shape):
        target = list(position)
        target[axis] = int(indices[position])
        if 0 <= target[axis] < x.shape[axis]:
            at = tuple(target)
            result[at] = _COMBINE[reduction](result[at], updates[position])
    return result


_ROWS = np.array([[1, 0, 2], [1, 2, 0]])
scatter_elements.spec(
    _scatter_elements_reference,
    op_case((3, 3), _ROWS, (2, 3)),
    op_case((3, 3), _ROWS, (2, 3), axis=1, reduction="add"),
    op_case((4,), np.array([1, 1, 7, -2]), (4,), reduction="mul"),
    op_case((4,), np.array([1, 1, 3], np.int32), (3,), axis=-1, reduction="max"),
    op_case((4,), np.array([1, 1, 3]), (3,), reduction="min", dtypes="int32", low=-9, high=9),
    op_case((3, 2), np.zeros((0, 2), np.int64), (0, 2)),
)


@scatter_elements.gradient
def _scatter_elements_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The last of several values for one element counts, or all are combined."""
    attrs = attrs_of(call, ScatterElementsAttrs)
    x, indices, updates = call.args
    axis = attrs.axis % tensor_type(x).ndim
    size = known_shape(x, call)[axis]
    if 0 in tensor_type(updates).shape or size == 0:
        return [dy, typed_zeros(indices), typed_zeros(updates)]
    positions = clamped(op.cast(indices, dtype="int64"), size, int64)
    # Updates at indices out of range are ignored, and so get no gradient.
    stays = op.equal(positions, op.cast(indices, dtype="int64"))
    if attrs.reduction != "update":
        places = Places(
            lambda v: op.gather(v, positions, axis=axis),
            lambda base, values, mode: scatter_elements(base, indices, values, axis=axis,
                                                        reduction=mode), stays)
        return _combined(call, y, dy, attrs.reduction, places)
    # Scattering the numbers of the updates tells which of them is the last at each element.
    numbers = numbered(known_shape(updates, call))
    unwritten = op.full(Constant(np.asarray(-1)), shape=known_shape(x, call))
    last = op.gather(op.scatter_elements(unwritten, indices, numbers, axis=axis), positions,
                     axis=axis)
    stays = op.logical_and(stays, op.equal(last, numbers))
    arriving = op.gather(dy, positions, axis=axis)
    kept = op.scatter_elements(dy, indices, typed_zeros(updates), axis=axis)
    return [kept, typed_zeros(indices), op.where(stays, arriving, scalar(0, dy))]


def _combined(call: Call, y: Expr, dy: Expr, mode: str, places: Places) -> list[Expr]:
    """The gradient of a scatter that combines values by ``mode``."""
    if mode == "add":
        return add_gradient(call, places, dy)
    if mode == "mul":
        return mul_gradient(call, places, dy)
    return extreme_gradient(call, y, dy, places)


@dataclass(frozen=True, kw_only=True)
class ScatterNDAttrs(Attrs):
    mode: str = attr("update", "combination of a value with the one already there",
                     check=one_of(*_MODES),
                     expected=", ".join(_MODES))


def _scatter_nd_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    source, indices, updates = types
    ctx.expect_int(1, indices)
    ctx.expect_same_dtype(2, updates, source.dtype)
    length = index_length(ctx, indices, source.ndim)
    wanted = (*indices.shape[1:], *source.shape[length:])
    if updates.ndim != len(wanted):
        ctx.fail("the updates do not fit the indices", arg=2,
                 expected=str(TensorType(wanted, source.dtype)), got=updates)
    for i, size in enumerate(wanted):
        ctx.expect_dim(2, i, updates.shape[i], size, "the updates do not fit the indices")
    ctx.output(source)
    return True


@define_op("scatter_nd", attrs=ScatterNDAttrs, relation=_scatter_nd_relation,
           pattern=OpPattern.OPAQUE, level=3, traits=OpTraits(updates_first=True))
def scatter_nd(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, attrs: ScatterNDAttrs
) -> te.Tensor:
    """``x`` with elements or slices of ``updates`` at the index tuples along axis 0 of ``indices``.

    They are written in row-major order; those with an index out of range are dropped.
    """
    return topi.scatter_nd(x, indices, updates, attrs.mode)


def _scatter_nd_reference(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str = "update"
) -> np.ndarray:
    result = np.array(x)
    for position in np.ndindex(indices.shape[1:]):
        target = tuple(int(k) for k in indices[(slice(None), *position)])
        if all(0 <= t < size for t, size in zip(target, x.shape, strict=False)):
            result[target] = _COMBINE[mode](result[target], updates[position])
    return result


scatter_nd.cut_axes(slice_axes)
scatter_nd.spec(
    _scatter_nd_reference,
    op_case((3, 4), np.array([[0, 2, 0], [1, 3, 1]]), (3,)),
    op_case((3, 4), np.array([[0, 2]]), (2, 4), mode="add"),
    op_case((5,), np.array([[1, 1, 9, 4]], np.int32), (4,), mode="mul"),
    op_case((2, 3), np.zeros((1, 0), np.int64), (0, 3), mode="max"),
    op_case((4,), np.array([[1, 1, -1]]), (3,), mode="min", dtypes="int32", low=-9, high=9),
)


@scatter_nd.gradient
def _scatter_nd_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    attrs = attrs_of(call, ScatterNDAttrs)
    if attrs.mode == "update":
        return write_gradient(2)(call, y, dy)
    x, indices, updates = call.args
    sizes, count = known_shape(x, call), known_shape(updates, call)
    if 0 in count or 0 in sizes:
        return [dy, typed_zeros(indices), typed_zeros(updates)]
    places = places_of_tuples(
        x, indices, updates,
        lambda base, values, mode: scatter_nd(base, indices, values, mode=mode), call)
    return _combined(call, y, dy, attrs.mode, places)


scatter_elements.batching(along("axis"))


@scatter_nd.batching
def _scatter_nd_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The index tuples get the number of the example in front."""
    x, indices, updates = all_repeated(call, args, is_batched, size)
    type_ = tensor_type(call.args[1])
    rest = known_shape(call.args[1], call)[1:]
    numbers = batch_numbers(size, type_.ndim, type_.dtype)
    numbers = op.broadcast_to(numbers, shape=(size, *rest))
    where_ = op.concatenate((op.expand_dims(numbers, axis=0),
                             moved(indices, 0, 1, type_.ndim + 1)), axis=0)
    return with_attrs(call, (x, where_, updates))
