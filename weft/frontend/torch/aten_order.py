"""Converters of sorting."""

from __future__ import annotations

from weft import op
from weft.frontend.torch.node import Node, axis_of, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("topk")
def topk(node: Node, x: Expr, count: int, axis: int, largest: bool, *_sorted: bool
         ) -> tuple[Expr, Expr]:
    found = node.call(op.topk, x, k=count, axis=axis_of(axis, rank_of(x)),
                      is_ascend=not largest, dtype="int64")
    return node.field(found, 0), node.field(found, 1)


@converts("sort.default")
def sort(node: Node, x: Expr, axis: int, descending: bool) -> tuple[Expr, Expr]:
    return _sorted(node, x, axis, descending)


@converts("sort.stable")
def stable_sort(node: Node, x: Expr, _stable: bool | None, axis: int, descending: bool
                ) -> tuple[Expr, Expr]:
    """Every sort here is stable."""
    return _sorted(node, x, axis, descending)


def _sorted(node: Node, x: Expr, axis: int, descending: bool) -> tuple[Expr, Expr]:
    axis = axis_of(axis, rank_of(x))
    places = _order(node, x, axis, descending)
    return node.call(op.gather, x, places, axis=axis), places


def _order(node: Node, x: Expr, axis: int, descending: bool) -> Expr:
    return node.call(op.argsort, x, axis=axis, is_ascend=not descending, dtype="int64")


@converts("argsort.default")
def argsort(node: Node, x: Expr, axis: int, descending: bool) -> Expr:
    if not shape_in(x):
        return node.constant(0, "int64")
    return _order(node, x, axis_of(axis, rank_of(x)), descending)
