"""Index vectors whose length is a dimension."""

from __future__ import annotations

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import FOLD_LIMIT_ELEMENTS
from weft.frontend.onnx.node import Node
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.shape import Dim


def positions(node: Node, end: Dim, dtype: DType | str = "int64", *, first: Dim = 0) -> Expr:
    """``first``, ``first`` + 1, … up to ``end`` (exclusive); a constant if they are few."""
    if isinstance(first, int) and isinstance(end, int) and end - first <= FOLD_LIMIT_ELEMENTS:
        return node.constant(arrays.arange(first, end), dtype)
    return node.call(op.arange, start=first, stop=end, step=1, dtype=DType.of(dtype))


def positions_along(node: Node, size: Dim, axis: int, rank: int, *, first: Dim = 0
                    ) -> Expr:
    """``first``, … up to ``size`` (exclusive), int64, along ``axis``.

    The other axes of the result have size 1; it broadcasts to ``rank`` axes.
    """
    line = positions(node, size, first=first)
    rest = rank - axis - 1
    return node.call(op.expand_dims, line, axis=1, num_newaxis=rest) if rest else line
