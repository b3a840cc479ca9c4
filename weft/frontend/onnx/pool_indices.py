"""Where in its window the largest element is: the second output of MaxPool."""

from __future__ import annotations

import math

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.windows import Window
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

_INDICES = {1: op.nn.max_pool1d_indices, 2: op.nn.max_pool2d_indices, 3: op.nn.max_pool3d_indices}


def places_of_largest(node: Node, window: Window) -> Expr:
    """Places in the flat input; of equal elements the first one in the window counts.

    ``storage_order`` 1 counts positions of an image by columns.
    """
    sizes = [d for d in node.shape() if isinstance(d, int)]
    operator = _INDICES.get(len(window.kernel))
    if operator is None or len(sizes) < node.rank():
        raise UnsupportedModelError(
            "MaxPool gives positions in images of up to three axes and fixed sizes",
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
    if node.attrs.integer("storage_order", 0) == 1:
        positions = _by_columns(node, positions, spatial)
    images = np.arange(batch * channels).reshape(batch, channels, *(1,) * len(spatial))
    return node.call(op.add, positions, node.constant(images * math.prod(spatial), "int64"))


def _by_columns(node: Node, positions: Expr, sizes: list[int]) -> Expr:
    """Row-major positions with the first axis counted fastest."""
    total, behind, step = node.constant(0, "int64"), math.prod(sizes), 1
    for size in sizes:
        behind //= size
        row = node.call(op.floor_divide, positions, node.constant(behind, "int64"))
        along = node.call(op.floor_mod, row, node.constant(size, "int64"))
        along = node.call(op.multiply, along, node.constant(step, "int64"))
        total = node.call(op.add, total, along)
        step *= size
    return total
