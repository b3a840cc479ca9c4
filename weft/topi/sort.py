"""Sorting along an axis: radix sort, selection for top-k, rank counting for short axes.

All compute the permutation of one total order (ties by position, NaN above every number, -0 equal
to 0), so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te
from weft.ir.dtype import DType, int64
from weft.tir import PrimExpr, Var, all_of, any_of, as_prim, const, int_value, not_, select
from weft.tir.buffer import Buffer
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from weft.topi.loop_nest import nest
from weft.topi.radix_sort import Element, Emit, sorted_numbers, sorted_positions

# Below this size rank counting is faster: quadratic work, but vectorized and branch-free.
_SHORT = 32
# Up to this many of the best elements are kept sorted while a row is read once.
_FEW = 64

# Whether the element at one position goes before the element at another.
Before = Callable[[PrimExpr, PrimExpr], PrimExpr]


def argsort(x: te.Tensor, axis: int, *, is_ascend: bool, count: PrimExpr | int | None = None,
            dtype: DType = int64) -> te.Tensor:
    """The positions of the first ``count`` elements (``None``: all) of each sorted row; stable."""
    wanted = x.shape[axis] if count is None else count
    size = int_value(x.shape[axis])
    if size is not None and size <= _SHORT:
        return _positions(_ranks(x, axis, is_ascend=is_ascend), axis, wanted, dtype)
    few = int_value(as_prim(wanted))
    # Insertions into a longer buffer of the best would cost more than sorting all.
    if size is not None and few is not None and 0 < few <= min(_FEW, size // 2):
        order = _selected(x, axis, size, few, is_ascend=is_ascend)
    else:
        order = _by_line(x, axis, as_prim(wanted), int64, lambda line, element, emit: (
            sorted_positions(line, as_prim(wanted), element, emit, is_ascend=is_ascend)))
    return te.compute(order.shape, lambda *i: order[i].astype(dtype), name="positions")


def sort(x: te.Tensor, axis: int, *, is_ascend: bool) -> te.Tensor:
    """The elements of each row in sorted order."""
    size = int_value(x.shape[axis])
    if size is not None and size <= _SHORT:
        return at_positions(x, argsort(x, axis, is_ascend=is_ascend), axis)
    return _by_line(x, axis, x.shape[axis], x.dtype, lambda line, element, emit: (
        sorted_numbers(line, element, emit, is_ascend=is_ascend)))


def at_positions(x: te.Tensor, coord: te.Tensor, axis: int) -> te.Tensor:
    """``x`` permuted by the result of ``argsort``."""
    return te.compute(
        coord.shape,
        lambda *i: x[(*i[:axis], coord[i].astype(int64), *i[axis + 1:])],
        name="sorted",
    )


def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Whether ``a`` sorts before ``b`` in ascending order."""
    if not a.dtype.is_float:
        return a < b
    return any_of(a < b, all_of(te.isnan(b), not_(te.isnan(a))))


def _ranks(x: te.Tensor, axis: int, *, is_ascend: bool) -> te.Tensor:
    """The rank of every element: the number of elements that sort before it."""
    k = te.reduce_axis(x.shape[axis], name="k")

    def rank(*i: PrimExpr) -> Any:
        own, other = x[i], x[(*i[:axis], k.var, *i[axis + 1:])]
        earlier = before(other, own) if is_ascend else before(own, other)
        # Ties count by position, so that ranks are a permutation and the order is stable.
        tied = all_of(not_(before(other, own)), not_(before(own, other)), k.var < i[axis])
        return te.sum(select(any_of(earlier, tied), const(1, int64), const(0, int64)), k)

    return te.compute(x.shape, rank, name="rank")


def _positions(rank: te.Tensor, axis: int, count: PrimExpr | int, dtype: DType) -> te.Tensor:
    """The positions of the first ``count`` ranks: the inverse permutation."""
    k = te.reduce_axis(rank.shape[axis], name="p")
    shape = (*rank.shape[:axis], count, *rank.shape[axis + 1:])

    def position(*i: PrimExpr) -> Any:
        hit = rank[(*i[:axis], k.var, *i[axis + 1:])].equal(i[axis])
        # Exactly one element has each rank.
        return te.max(select(hit, k.var.astype(dtype), const(0, dtype)), k)

    return te.compute(shape, position, name="positions")


def _selected(x: te.Tensor, axis: int, size: int, count: int, *, is_ascend: bool) -> te.Tensor:
    """The first ``count`` of the sorted order of every row."""

    def sort(_: PrimExpr, element: Element, emit: Emit) -> Stmt:
        def goes_before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
            first, second = (a, b) if is_ascend else (b, a)
            return before(element(first), element(second))

        return select_first(size, count, goes_before, emit)

    return _by_line(x, axis, const(count), int64, sort)


def _by_line(x: te.Tensor, axis: int, count: PrimExpr, dtype: DType,
             sort: Callable[[PrimExpr, Element, Emit], Stmt]) -> te.Tensor:
    """``sort`` of the size, the elements and what stores a result, for every row along ``axis``."""

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, target = inputs[0], outputs[0]

        def line(i: tuple[PrimExpr, ...]) -> Stmt:
            def element(position: PrimExpr) -> PrimExpr:
                return source.load(*i[:axis], position, *i[axis:])

            def emit(rank: PrimExpr, value: PrimExpr) -> Stmt:
                return BufferStore(target, value, (*i[:axis], rank, *i[axis:]))

            return sort(source.shape[axis], element, emit)

        size = int_value(source.shape[axis]) or 0
        return nest((*source.shape[:axis], *source.shape[axis + 1:]), line, independent=True,
                    work=size * size.bit_length())

    shape = (*x.shape[:axis], count, *x.shape[axis + 1:])
    return te.extern([shape], [x], build, [dtype], "sort_lines")[0]


def select_first(size: int, count: int, goes_before: Before, emit: Emit) -> Stmt:
    """The first ``count`` positions (1 or more) of the sorted order of ``size``.

    Insertion into a sorted buffer of the best so far, for positions that sort before its last
    one: about ``count * log(size / count)`` insertions for random rows.
    """
    best = Buffer("best", (as_prim(count),), int64)
    slot = Buffer("slot", (as_prim(1),), int64)
    zero = as_prim(0)
    at = slot.load(zero)

    def take(position: PrimExpr, last: PrimExpr) -> Stmt:
        """Insertion sort: move from ``last`` forward while it sorts before its predecessor."""
        # Nested in ``at > 0`` below: a single condition would read ``best`` before its start.
        move = IfThenElse(goes_before(position, best.load(at - 1)), seq([
            BufferStore(best, best.load(at - 1), (at,)), BufferStore(slot, at - 1, (zero,))]))
        sink = For(Var("k", int64), zero, last, ForKind.SERIAL, IfThenElse(at > 0, move))
        return seq([BufferStore(slot, last, (zero,)), sink, BufferStore(best, position, (at,))])

    i, j, worst = Var("i", int64), Var("j", int64), as_prim(count - 1)
    fill = For(i, zero, as_prim(count), ForKind.SERIAL, take(i, i))
    rest = For(j, as_prim(count), as_prim(size - count), ForKind.SERIAL,
               IfThenElse(goes_before(j, best.load(worst)), take(j, worst)))
    finish = nest((as_prim(count),), lambda n: emit(n[0], best.load(n[0])))
    return Allocate(best, Allocate(slot, seq([fill, rest, finish])))
