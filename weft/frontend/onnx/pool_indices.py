"""The second output of MaxPool: indices of the maxima in the flattened input."""

from __future__ import annotations

import math

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.windows import Window
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

_INDICES = {1: op.nn.max_pool1d_indices, 2: op.nn.max_pool2d_indices, 3: op.nn.max_pool3d_indices}


def indices_of_largest(node: Node, window: Window) -> Expr:
    """Return int64 indices into the flattened input; the first of equal maxima is taken.

    With ``storage_order`` 1 the spatial axes are flattened in column-major order.
    """
    sizes = [d for d in node.shape() if isinstance(d, int)]
    operator = _INDICES.get(len(window.kernel))
    if operator is None or len(sizes) < node.rank():
        raise UnsupportedModelError(
            "MaxPool indices need one to three spatial axes of fixed size",
            where=node.span,
            got=f"shape ({', '.join(map(str, node.shape()))})",
        )
    positions = node.call(
        operator,
        node.input(0),
        pool_size=window.kernel,
        strides=window.strides,
        dilation=window.dilations,
        padding=window.padding,
        ceil_mode=node.attrs.flag("ceil_mode"),
    )
    batch, channels, *spatial = sizes
    if node.attrs.flag("storage_order"):
        positions = _by_columns(node, positions, spatial)
    images = arrays.arange(batch * channels).reshape(batch, channels, *(1,) * len(spatial))
    return node.call(op.add, positions, node.constant(images * math.prod(spatial), "int64"))


def _by_columns(node: Node, positions: Expr, sizes: list[int]) -> Expr:
    """Convert row-major to column-major indices."""
    total, behind, step = node.constant(0, "int64"), math.prod(sizes), 1
    for size in sizes:
        behind //= size
        row = node.call(op.floor_divide, positions, node.constant(behind, "int64"))
        along = node.call(op.floor_mod, row, node.constant(size, "int64"))
        along = node.call(op.multiply, along, node.constant(step, "int64"))
        total = node.call(op.add, total, along)
        step *= size
    return total
