"""Sorting by counting: the rank of an element is how many others come before it.

The order is total (ties by position, NaN above every number), so ranks are a permutation and
results are the same on any number of threads. The work is quadratic in the length of the axis,
all of it vectorised and parallel, with no data-dependent branch.
"""

from __future__ import annotations

from typing import Any

from weft import te
from weft.ir.dtype import DType, int64
from weft.tir.expr import PrimExpr, all_of, any_of, const, not_, select


def ranks(x: te.Tensor, axis: int, *, is_ascend: bool) -> te.Tensor:
    """The place of every element in the sorted order along ``axis``; stable."""
    k = te.reduce_axis(x.shape[axis], name="k")

    def rank(*i: PrimExpr) -> Any:
        own, other = x[i], x[(*i[:axis], k.var, *i[axis + 1:])]
        earlier = _before(other, own) if is_ascend else _before(own, other)
        tied = all_of(not_(_before(other, own)), not_(_before(own, other)), k.var < i[axis])
        return te.sum(select(any_of(earlier, tied), const(1, int64), const(0, int64)), k)

    return te.compute(x.shape, rank, name="rank", tag="comm_reduce")


def _before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Whether ``a`` sorts before ``b`` going up."""
    if not a.dtype.is_float:
        return a < b
    return any_of(a < b, all_of(te.isnan(b), not_(te.isnan(a))))


def positions(rank: te.Tensor, axis: int, count: PrimExpr | int, dtype: DType) -> te.Tensor:
    """Where the first ``count`` elements of the order are: the inverse of the permutation."""
    k = te.reduce_axis(rank.shape[axis], name="p")
    shape = (*rank.shape[:axis], count, *rank.shape[axis + 1:])

    def position(*i: PrimExpr) -> Any:
        hit = rank[(*i[:axis], k.var, *i[axis + 1:])].equal(i[axis])
        return te.sum(select(hit, k.var.astype(dtype), const(0, dtype)), k)

    return te.compute(shape, position, name="positions", tag="comm_reduce")


def at_positions(x: te.Tensor, place: te.Tensor, axis: int) -> te.Tensor:
    """``x`` in the order that ``positions`` gives."""
    return te.compute(
        place.shape,
        lambda *i: x[(*i[:axis], place[i].astype(int64), *i[axis + 1:])],
        name="sorted",
        tag="injective,gather",
    )
