"""Converter of Col2Im, which sums overlapping windows into an image."""

from __future__ import annotations

import itertools
import math

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Constant, Expr
from weft.support.allocation import check_allocation
from weft.support.errors import UnsupportedModelError
from weft.topi.nn.window import window_count, window_span


@converts("Col2Im", since=18, attributes=("dilations", "pads", "strides"))
def col2im(node: Node) -> Expr:
    """Scatter-add the columns [batch, channels * taps, windows] into the padded image."""
    image, block = node.ints(1, "image_shape"), node.ints(2, "block_shape")
    rank = len(image)
    strides = node.attrs.integers("strides") or (1,) * rank
    dilations = node.attrs.integers("dilations") or (1,) * rank
    pads = node.attrs.integers("pads") or (0,) * 2 * rank
    if not rank == len(block) == len(strides) == len(dilations) == len(pads) // 2:
        raise node.fail("the shapes and attributes differ in length", expected=f"{rank} axes")
    if min((*block, *strides, *dilations), default=1) < 1 or min((*image, *pads), default=0) < 0:
        raise node.fail("a size or a stride is too small", expected="1 or more, pads 0 or more",
                        got=f"{block}, {strides}, {dilations}, {image}, {pads}")
    shape = node.shape()
    known = [d for d in shape if isinstance(d, int)]
    if len(shape) != 3 or len(known) < 3:
        raise UnsupportedModelError("Col2Im of symbolic sizes", where=node.span)
    padded = [size + pads[i] + pads[rank + i] for i, size in enumerate(image)]
    counts = [
        window_count(size, window_span(taps, dilation), stride)
        for size, taps, dilation, stride in zip(padded, block, dilations, strides, strict=True)
    ]
    taps = math.prod(block)
    if known[1] % taps or known[2] != math.prod(counts):
        raise node.fail(
            "the columns do not match the image",
            expected=f"channels * {taps} rows and {math.prod(counts)} windows",
            got=str(tensor_type(node.input(0))),
        )
    positions = _positions(padded, counts, block, strides, dilations)
    rows = known[0] * known[1] // taps
    columns = reshape_to(node, node.input(0), (rows, taps * known[2]))
    columns = node.call(op.transpose, columns, axes=(1, 0))
    blank = arrays.zeros((math.prod(padded), rows), node.dtype().numpy)
    total = node.call(op.scatter_nd, Constant(blank, span=node.span),
                      node.constant(positions[None], "int64"), columns, mode="add")  # fmt: skip
    total = node.call(op.transpose, total, axes=(1, 0))
    result = reshape_to(node, total, (known[0], known[1] // taps, *padded))
    if not any(pads):
        return result
    return node.call(op.strided_slice, result, begin=pads[:rank],
                     end=tuple(b + s for b, s in zip(pads, image, strict=False)),
                     strides=(1,) * rank, axes=tuple(range(2, rank + 2)))  # fmt: skip


def _positions(
    padded: list[int], counts: list[int], block: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> np.ndarray:
    """Return the index in the flat padded image of each tap of each window; taps are outermost."""
    check_allocation((math.prod(block), math.prod(counts)), 8)
    result = []
    for tap in itertools.product(*map(range, block)):
        flat = arrays.zeros((1,) * len(padded), np.int64)
        for axis, size in enumerate(padded):
            line = arrays.arange(counts[axis]) * strides[axis] + tap[axis] * dilations[axis]
            flat = flat * size + line.reshape(-1, *(1,) * (len(padded) - axis - 1))
        result.append(flat.reshape(-1))
    return np.concatenate(result)
