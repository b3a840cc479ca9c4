"""Converters of sorting."""

from __future__ import annotations

from weft import op
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("topk")
def topk(node: Node, x: Expr, count: int, axis: int, largest: bool, *_sorted: bool
         ) -> tuple[Expr, Expr]:
    if not rank_of(x):
        line = node.reshape(x, (1,))
        positions = node.slice(node.constant([0], "int64"), 0, 0, count)
        taken = node.slice(line, 0, 0, count)
        if not count:
            return taken, positions
        return node.reshape(taken, ()), node.reshape(positions, ())
    dtype = dtype_in(x)
    numeric = node.cast(x, "uint8") if dtype.is_bool else x
    found = node.call(op.topk, numeric, k=count, axis=axis_of(axis, rank_of(x)),
                      is_ascend=not largest, dtype="int64")
    return node.cast(node.field(found, 0), dtype), node.field(found, 1)


@converts("sort.default")
def sort(node: Node, x: Expr, axis: int, descending: bool) -> tuple[Expr, Expr]:
    return _sorted(node, x, axis, descending)


@converts("sort.stable")
def stable_sort(node: Node, x: Expr, _stable: bool | None, axis: int, descending: bool
                ) -> tuple[Expr, Expr]:
    """Sort; all sorts of weft are stable."""
    return _sorted(node, x, axis, descending)


def _sorted(node: Node, x: Expr, axis: int, descending: bool) -> tuple[Expr, Expr]:
    if not rank_of(x):
        return x, node.constant(0, "int64")
    axis = axis_of(axis, rank_of(x))
    positions = sorted_order(node, x, axis, descending=descending)
    if node.fields == frozenset([0]) and not dtype_in(x).is_bool:  # values sort without positions
        return node.call(op.sort, x, axis=axis, is_ascend=not descending), positions
    return node.call(op.gather, x, positions, axis=axis), positions


def sorted_order(node: Node, x: Expr, axis: int, *, descending: bool) -> Expr:
    """The indices that sort ``x`` along ``axis``, stably, with NaN as the largest value."""
    numeric = node.cast(x, "uint8") if dtype_in(x).is_bool else x
    return node.call(op.argsort, numeric, axis=axis, is_ascend=not descending, dtype="int64")


@converts("argsort.default")
def argsort(node: Node, x: Expr, axis: int, descending: bool) -> Expr:
    return _sorted(node, x, axis, descending)[1]


@converts("argsort.stable")
def stable_argsort(node: Node, x: Expr, _stable: bool, axis: int, descending: bool) -> Expr:
    return _sorted(node, x, axis, descending)[1]
