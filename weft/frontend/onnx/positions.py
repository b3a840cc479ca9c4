"""Index vectors whose length is a dimension."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.shape import Dim


def positions(node: Node, end: Dim, dtype: DType | str = "int64", *, first: Dim = 0) -> Expr:
    """``first``, ``first`` + 1, … up to ``end`` (exclusive); a constant if both are fixed."""
    if isinstance(first, int) and isinstance(end, int):
        return node.constant(np.arange(first, end), dtype)
    return node.call(op.arange, start=first, stop=end, step=1, dtype=DType.of(dtype))
