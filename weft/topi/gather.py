"""Reading elements at positions that another tensor gives, one position for each result."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir.expr import PrimExpr, maximum, minimum


def within(position: PrimExpr, size: PrimExpr) -> PrimExpr:
    """``position`` as int64, moved to the nearest end of an axis where it lies beyond."""
    return minimum(maximum(position.astype(int64), 0), size - 1)


def gather(x: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """``x[i, …, indices[i, …, j, …], …]``: the index of ``axis`` is looked up."""

    def element(*i: PrimExpr) -> PrimExpr:
        return x[(*i[:axis], within(indices[i], x.shape[axis]), *i[axis + 1:])]

    return te.compute(indices.shape, element, name="gather", tag="injective,gather")


def gather_nd(x: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """The slices of ``x`` that start with the index tuples along axis 0 of ``indices``."""
    length = indices.static_shape[0]
    outer = indices.shape[1:]
    first = batch_dims + length

    def element(*i: PrimExpr) -> PrimExpr:
        place = i[:len(outer)]
        looked_up = tuple(
            within(indices[(k, *place)], x.shape[batch_dims + k]) for k in range(length)
        )
        return x[(*i[:batch_dims], *looked_up, *i[len(outer):])]

    return te.compute((*outer, *x.shape[first:]), element, name="gather_nd",
                      tag="injective,gather")
