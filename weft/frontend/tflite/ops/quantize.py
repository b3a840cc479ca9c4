"""Conversion between real numbers and the integers that stand for them."""

from __future__ import annotations

from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.node import Node, quantized
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr


@converts("QUANTIZE")
def quantize(node: Node) -> Expr:
    """Halves are rounded away from zero. An operand that is quantized gets another scale."""
    if node.results[0].quantization is None:
        raise node.fail("the result has no scale", got=node.results[0].type)
    return quantized(node.cast(node.input(0), "float32"), node.results[0], node.span, "away")


@converts("DEQUANTIZE")
def dequantize(node: Node) -> Expr:
    """Of half-precision numbers it is a cast."""
    return node.cast(node.input(0), node.result_dtype())


@converts("FAKE_QUANT")
def fake_quantize(node: Node) -> Expr:
    """Real numbers rounded to the steps of an 8-bit range that has zero as one of its steps."""
    x = node.input(0)
    low, high = float(node.option("Min", 0.0)), float(node.option("Max", 0.0))
    bits = int(node.option("NumBits", 8))
    if not (low <= 0 <= high and low < high and 2 <= bits <= 16):
        raise node.fail("the range does not contain zero", got=f"{low} to {high} of {bits} bits")
    first, last = int(bool(node.option("NarrowRange"))), (1 << bits) - 1
    scale = (high - low) / (last - first)
    zero = min(max(round(first - low / scale), first), last)
    low, high = (first - zero) * scale, (last - zero) * scale
    inside = node.call(op.clip, x, a_min=low, a_max=high)
    dtype = tensor_type(x).dtype
    moved = node.call(op.divide, node.call(op.subtract, inside, node.constant(low, dtype)),
                      node.constant(scale, dtype))
    steps = node.call(op.floor, node.call(op.add, moved, node.constant(0.5, dtype)))
    return node.call(op.add, node.call(op.multiply, steps, node.constant(scale, dtype)),
                     node.constant(low, dtype))
