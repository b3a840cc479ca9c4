"""Converters of cumulative maxima, minima and log-sum-exp."""

from __future__ import annotations

from weft import op
from weft.frontend.torch.aten.shape import range_of_sizes
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("cummax", "cummin")
def running_extreme(node: Node, x: Expr, axis: int) -> tuple[Expr, Expr]:
    """The cumulative maximum (minimum) and its index, the last one among equal elements.

    From the first NaN on, the result is NaN and the index is that of the last NaN so far.
    """
    if not rank_of(x):
        return x, node.constant(0, "int64")
    axis, dtype = axis_of(axis, rank_of(x)), dtype_in(x)
    numeric = node.cast(x, "uint8") if dtype.is_bool else x
    operator = op.cummax if node.op.startswith("aten.cummax") else op.cummin
    values = node.call(operator, numeric, axis=axis)
    is_here = node.call(op.equal, numeric, values)
    if dtype.is_float:
        is_here = node.call(op.logical_or, is_here, node.call(op.isnan, numeric))
    here = node.call(op.where, is_here, positions(node, x, axis), node.constant(-1, "int64"))
    return node.cast(values, dtype), node.call(op.cummax, here, axis=axis)


def positions(node: Node, x: Expr, axis: int) -> Expr:
    """The index of each element along ``axis``, in a shape that broadcasts to ``x``."""
    line, rest = range_of_sizes(node, shape_in(x)[axis]), rank_of(x) - axis - 1
    return node.call(op.expand_dims, line, axis=1, num_newaxis=rest) if rest else line


@converts("logcumsumexp")
def logcumsumexp(node: Node, x: Expr, axis: int) -> Expr:
    if not rank_of(x):
        return x
    return node.call(op.logcumsumexp, x, axis=axis_of(axis, rank_of(x)))
