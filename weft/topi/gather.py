"""Gathers: reads at positions given by another tensor, one position per result."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, int_value, maximum, minimum


def within(position: PrimExpr, size: PrimExpr) -> PrimExpr:
    """``position`` as int64, clamped to the axis."""
    return minimum(maximum(position.astype(int64), 0), size - 1)


def gather(x: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """``x[i, …, indices[i, …, j, …], …]``: the index of ``axis`` is looked up."""

    def element(*i: PrimExpr) -> PrimExpr:
        return x[(*i[:axis], within(indices[i], x.shape[axis]), *i[axis + 1:])]

    return te.compute(indices.shape, element, name="gather")


def fixed_length(indices: te.Tensor) -> int:
    """The length of an index tuple: the size of axis 0, which must be fixed."""
    length = int_value(indices.shape[0])
    if length is None:
        raise LoweringError("the number of indexed axes must be fixed", got=indices.shape[0])
    return length


def gather_nd(x: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """The slices of ``x`` at the index tuples stored along axis 0 of ``indices``."""
    length = fixed_length(indices)
    outer = indices.shape[1:]
    first = batch_dims + length

    def element(*i: PrimExpr) -> PrimExpr:
        coord = i[:len(outer)]
        looked_up = tuple(
            within(indices[(k, *coord)], x.shape[batch_dims + k]) for k in range(length)
        )
        return x[(*i[:batch_dims], *looked_up, *i[len(outer):])]

    return te.compute((*outer, *x.shape[first:]), element, name="gather_nd")
