"""Operators that read or write at positions: what an element gives to others comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr, TupleGetItem
from weft.op.gradients import broadcast_gradients, scalar, tensor_type
from weft.support.errors import PassError
from weft.transform.autodiff.adjoint import zeros_like
from weft.transform.autodiff.gradient_rules.shape import static_shape

Rule = Callable[[Call, Expr, Expr], list[Expr]]


def _moved_back(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """For any operator that hands on elements of its first argument, once or several times.

    Applied to the positions of the elements it says where each element of the result is from;
    what arrives there is added up. The other arguments are positions and have no gradient.
    """
    x, *others = call.args
    shape = static_shape(x, call)
    total = int(np.prod(shape, dtype=np.int64))
    places = Constant(np.arange(total).reshape(shape))
    origin = op.reshape(call.op(places, *others, **dict(call.attrs.items())), newshape=(-1,))
    flat = op.reshape(dy, newshape=(-1,))
    if total == 0 or 0 in tensor_type(call).shape:
        return [zeros_like(x), *map(zeros_like, others)]
    clear = op.zeros(shape=(total,), dtype=tensor_type(x).dtype)
    added = op.scatter_elements(clear, origin, flat, reduction="add")
    return [op.reshape(added, newshape=shape, allowzero=True), *map(zeros_like, others)]


def _reverse(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.reverse(dy, **dict(call.attrs.items()))]


def _tile(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Copies are axes of their own, over which is summed."""
    shape, reps = static_shape(call.args[0], call), call.attrs.reps  # type: ignore[attr-defined]
    rank = max(len(shape), len(reps))
    sizes = (1,) * (rank - len(shape)) + shape
    times = (1,) * (rank - len(reps)) + tuple(reps)
    apart = tuple(n for pair in zip(times, sizes, strict=True) for n in pair)
    copies = tuple(range(0, 2 * rank, 2))
    total = op.sum(op.reshape(dy, newshape=apart, allowzero=True), axis=copies)
    return [op.reshape(total, newshape=shape, allowzero=True)]


def _cumsum(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    x = call.args[0]
    back = op.cumsum(dy, axis=attrs.axis, exclusive=attrs.exclusive, reverse=not attrs.reverse)
    return [op.cast(back, dtype=tensor_type(x).dtype)]


def _cumprod(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """``sum(dy[j] * y[j]) / x[i]`` over the products that hold element i.

    Products after the first zero are zero. That zero itself has the slope of the products without
    it; later zeros stand behind it and have none.
    """
    attrs: Any = call.attrs
    x = call.args[0]
    zero, one = scalar(0, x), scalar(1, x)
    forward = {"axis": attrs.axis, "reverse": attrs.reverse}
    back = {"axis": attrs.axis, "exclusive": attrs.exclusive, "reverse": not attrs.reverse}
    is_zero = op.equal(x, zero)
    earlier = op.cumsum(op.cast(is_zero, dtype=tensor_type(x).dtype), exclusive=True, **forward)
    is_first = op.logical_and(is_zero, op.equal(earlier, zero))
    without = op.cumprod(op.where(is_first, one, x), exclusive=attrs.exclusive, **forward)
    at_first = op.cumsum(op.multiply(dy, without), **back)
    elsewhere = op.divide(op.cumsum(op.multiply(dy, y), **back), op.where(is_zero, one, x))
    return [op.where(is_first, at_first, op.where(is_zero, zero, elsewhere))]


def _at_places(x: Expr, places: Expr, values: Expr, axis: int) -> Expr:
    """``values`` added to zeros in the shape of ``x``."""
    return op.scatter_elements(zeros_like(x), places, values, axis=axis, reduction="add")


def _sort(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    x = call.args[0]
    places = op.argsort(x, axis=attrs.axis, is_ascend=attrs.is_ascend)
    return [_at_places(x, places, dy, attrs.axis)]


def _topk(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    x, *count = call.args
    return [_at_places(x, TupleGetItem(y, 1), TupleGetItem(dy, 0), attrs.axis),
            *map(zeros_like, count)]


def _gather(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    x, indices = call.args
    last = tensor_type(x).concrete_shape[attrs.axis] - 1
    return [_at_places(x, op.clip(indices, a_min=0, a_max=max(last, 0)), dy, attrs.axis),
            zeros_like(indices)]


def _scatter_elements(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Of several values for one place the last one stays, or all are added."""
    attrs: Any = call.attrs
    x, indices, updates = call.args
    axis = attrs.axis % tensor_type(x).ndim
    size = tensor_type(x).concrete_shape[axis]
    shape = static_shape(updates, call)
    if attrs.reduction not in ("update", "add"):
        raise PassError(f"scatter_elements by {attrs.reduction!r} has no gradient",
                        where=call.span, expected="update or add")
    if 0 in shape or size == 0:
        return [dy, zeros_like(indices), zeros_like(updates)]
    places = op.clip(op.cast(indices, dtype="int64"), a_min=0, a_max=size - 1)
    stays = op.equal(places, op.cast(indices, dtype="int64"))
    arriving = op.gather(dy, places, axis=axis)
    kept = dy
    if attrs.reduction == "update":
        numbers = Constant(np.arange(int(np.prod(shape))).reshape(shape))
        nobody = op.full(Constant(np.asarray(-1)), shape=static_shape(x, call))
        last = op.gather(op.scatter_elements(nobody, indices, numbers, axis=axis), places,
                         axis=axis)
        stays = op.logical_and(stays, op.equal(last, numbers))
        kept = op.scatter_elements(dy, indices, zeros_like(updates), axis=axis)
    return [kept, zeros_like(indices), op.where(stays, arriving, scalar(0, dy))]


def _remainder(quotient: Callable[[Expr, Expr], Expr]) -> Rule:
    """``lhs - quotient * rhs``, where the quotient is a step."""

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        steps = op.multiply(dy, quotient(*call.args))
        return broadcast_gradients(call, dy, op.negative(steps))

    return rule


def _sparse_to_dense(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Values get what arrives where they stay, the default the rest."""
    indices, values, default = call.args
    shape = tensor_type(call).concrete_shape
    count = tensor_type(values).concrete_shape[0]
    numbers = Constant(np.arange(1, count + 1))
    owner = op.sparse_to_dense(indices, numbers, Constant(np.asarray(0)), output_shape=shape)
    flat = op.reshape(owner, newshape=(-1,))
    shares = op.scatter_elements(op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype),
                                 flat, op.reshape(dy, newshape=(-1,)), reduction="add")
    rest = op.squeeze(op.strided_slice(shares, begin=(0,), end=(1,)), axis=0)
    return [zeros_like(indices), op.strided_slice(shares, begin=(1,), end=(count + 1,)),
            op.cast(rest, dtype=tensor_type(default).dtype)]


RULES: dict[str, Rule] = {
    "cumprod": _cumprod,
    "cumsum": _cumsum,
    "floor_mod": _remainder(op.floor_divide),
    "gather": _gather,
    "gather_nd": _moved_back,
    "mod": _remainder(op.trunc_divide),
    "reverse": _reverse,
    "scatter_elements": _scatter_elements,
    "sliding_window": _moved_back,
    "sort": _sort,
    "sparse_to_dense": _sparse_to_dense,
    "tile": _tile,
    "topk": _topk,
    "dyn.broadcast_to": lambda call, _y, dy: [
        op.collapse_sum_like(dy, call.args[0]), zeros_like(call.args[1])],
    "dyn.full": lambda call, _y, dy: [op.sum(dy), zeros_like(call.args[1])],
    "dyn.strided_slice": _moved_back,
    "dyn.tile": _moved_back,
    "dyn.topk": _topk,
    "dyn.expand_dims": lambda call, _y, dy: [
        op.reshape_like(dy, call.args[0]), zeros_like(call.args[1])],
    "dyn.reshape": lambda call, _y, dy: [
        op.reshape_like(dy, call.args[0]), zeros_like(call.args[1])],
    "dyn.squeeze": lambda call, _y, dy: [
        op.reshape_like(dy, call.args[0]), zeros_like(call.args[1])],
}
