"""Converter of MaxUnpool."""

from __future__ import annotations

import math

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Constant, Expr
from weft.support.errors import UnsupportedModelError


@converts("MaxUnpool", since=9, attributes=("kernel_shape", "pads", "strides"))
def max_unpool(node: Node) -> Expr:
    """Scatter elements to the indices that MaxPool returned; other elements are zero.

    Indices refer to the tensor that was pooled; a larger ``output_shape`` appends zeros.
    """
    shape = node.shape()
    known = [d for d in shape if isinstance(d, int)]
    kernel = node.attrs.integers("kernel_shape") or ()
    if len(known) < len(shape):
        raise UnsupportedModelError("MaxUnpool of symbolic sizes", where=node.span)
    strides = node.attrs.integers("strides") or (1,) * len(kernel)
    pads = node.attrs.integers("pads") or (0,) * 2 * len(kernel)
    if not len(kernel) == len(strides) == len(known) - 2 == len(pads) // 2:
        raise node.fail("attributes do not match the rank of the input",
                        expected=f"{len(known) - 2} axes")
    pooled = known[:2] + [
        (size - 1) * stride - pads[i] - pads[len(kernel) + i] + kernel[i]
        for i, (size, stride) in enumerate(zip(known[2:], strides, strict=True))
    ]
    zeros = arrays.zeros(math.prod(pooled), node.dtype().numpy)
    indices = reshape_to(node, node.input(1), (1, math.prod(known)))
    values = reshape_to(node, node.input(0), (math.prod(known),))
    flat = node.call(op.scatter_nd, Constant(zeros, span=node.span), indices, values, mode="update")
    result = reshape_to(node, flat, tuple(pooled))
    wanted = node.optional_ints(2, "output_shape")
    if wanted is None or tuple(wanted) == tuple(pooled):
        return result
    if len(wanted) != len(pooled) or any(w < p for w, p in zip(wanted, pooled, strict=True)):
        raise node.fail("output_shape is smaller than the pooled tensor",
                        expected=f"{tuple(pooled)} or more", got=str(wanted))  # fmt: skip
    width = tuple((0, w - p) for w, p in zip(wanted, pooled, strict=True))
    return node.call(op.nn.pad, result, node.scalar_like(0, result), pad_width=width)
