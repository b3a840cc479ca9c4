"""Gradients of scatter operators that combine several values at one element."""

from __future__ import annotations

from collections.abc import Callable

from weft import op
from weft.ir import Call, Expr, Tuple, const, infer_expr, int64
from weft.op.gradients import clamped, known_shape, scalar, tensor_type, typed_zeros
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Places:
    """Where a scatter writes its updates.

    ``read(v)`` is ``v``, of the shape of the data, at the element of each update. ``write(base,
    values, mode)`` is the scatter. ``found`` is true for updates that are written; ``None`` if all
    are.
    """

    read: Callable[[Expr], Expr]
    write: Callable[[Expr, Expr, str], Expr]
    found: Expr | None

    def of_found(self, values: Expr) -> Expr:
        """``values``, one per update, and zero for those that are dropped."""
        if self.found is None:
            return values
        typed = infer_expr(values, trust=True)
        return op.where(self.found, typed, scalar(0.0, typed))


def places_of_tuples(
    x: Expr, indices: Expr, updates: Expr, write: Callable[[Expr, Expr, str], Expr], call: Call
) -> Places:
    """The positions of index tuples along axis 0 of ``indices``; those out of range are dropped."""
    wide, at = clamped_tuples(x, indices, call)
    found: Expr | None = None
    if known_shape(indices, call)[0] != 0:
        found = op.all(op.equal(wide, at), axis=(0,), keepdims=True)
        found = op.squeeze(found, axis=(0,))
        missing = tensor_type(updates).ndim - tensor_type(indices).ndim + 1
        found = op.expand_dims(found, axis=-1, num_newaxis=missing) if missing else found
    return Places(lambda v: op.gather_nd(v, at), write, found)


def clamped_tuples(x: Expr, indices: Expr, call: Call) -> tuple[Expr, Expr]:
    """Index tuples along axis 0 as int64, as they are and limited to the axes of ``x``; typed."""
    wide = infer_expr(op.cast(indices, dtype="int64"), trust=True)
    sizes, (length, *_) = known_shape(x, call), known_shape(indices, call)
    rows = [infer_expr(op.strided_slice(wide, begin=(k,), end=(k + 1,), axes=(0,)), trust=True)
            for k in range(length if isinstance(length, int) else 0)]
    inside = tuple(clamped(row, size, int64) for row, size in zip(rows, sizes, strict=False))
    at = op.concatenate(Tuple(inside), axis=0) if inside else wide
    return wide, infer_expr(at, trust=True)


def add_gradient(call: Call, places: Places, dy: Expr) -> list[Expr]:
    """Both the data and the updates have the gradient of the element."""
    return [dy, typed_zeros(call.args[1]), places.of_found(places.read(dy))]


def mul_gradient(call: Call, places: Places, dy: Expr) -> list[Expr]:
    """The product of the other factors, also where one of them is zero."""
    x, indices, updates = call.args
    kept = op.multiply(dy, places.write(op.ones_like(x), updates, "mul"))
    (of_x, zero_x), (of_updates, zero_updates) = (_nonzero(v) for v in (x, updates))
    product = places.read(places.write(of_x, of_updates, "mul"))
    zeros = op.subtract(places.read(places.write(zero_x, zero_updates, "add")), zero_updates)
    others = op.where(op.equal(zeros, scalar(0.0, updates)), op.divide(product, of_updates),
                      scalar(0.0, updates))
    return [kept, typed_zeros(indices),
            places.of_found(op.multiply(places.read(dy), others))]


def _nonzero(x: Expr) -> tuple[Expr, Expr]:
    """``x`` with ones for zeros, and ones at these zeros."""
    is_zero = op.equal(x, scalar(0.0, x))
    return op.where(is_zero, scalar(1.0, x), x), op.cast(is_zero, dtype=tensor_type(x).dtype)


def extreme_gradient(call: Call, y: Expr, dy: Expr, places: Places) -> list[Expr]:
    """Values equal to the extreme share its gradient equally, as in ``max`` and ``min``."""
    x, indices, updates = call.args
    wins, updates_win = op.equal(x, y), op.equal(updates, places.read(y))
    dtype = tensor_type(x).dtype
    count = places.write(op.cast(wins, dtype=dtype), op.cast(updates_win, dtype=dtype), "add")
    share, zero = op.divide(dy, count), const(0, dtype)
    return [op.where(wins, share, zero), typed_zeros(indices),
            places.of_found(op.where(updates_win, places.read(share), zero))]
