"""ONNX Runtime's variants of GELU, with and without a bias."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Expr
from weft.op.composites import activations
from weft.support.errors import UnsupportedModelError


@converts(contrib("Gelu"))
def gelu(node: Node) -> Expr:
    return node.composed(activations.gelu, node.input(0))


@converts(contrib("BiasGelu"))
def bias_gelu(node: Node) -> Expr:
    return node.composed(activations.gelu, node.call(op.add, node.input(0), node.input(1)))


@converts(contrib("FastGelu"))
def fast_gelu(node: Node) -> Expr:
    """GELU by tanh; the bias is optional."""
    x = node.input(0)
    biased = node.call(op.add, x, node.input(1)) if node.has_input(1) else x
    return node.composed(activations.gelu, biased, "tanh")


@converts(contrib("QuickGelu"), attributes=("alpha",))
def quick_gelu(node: Node) -> Expr:
    return node.composed(activations.silu, node.input(0), node.attrs.number("alpha", 1.702))


@converts(contrib("BiasSplitGelu"))
def bias_split_gelu(node: Node) -> Expr:
    """The first half of x + bias, times the GELU of the second half, along the last axis."""
    value = node.call(op.add, node.input(0), node.input(1))
    axis, width = node.rank() - 1, node.shape()[-1]
    if not isinstance(width, int):
        raise UnsupportedModelError("BiasSplitGelu of a symbolic width", where=node.span)
    halves = node.call(op.split, value, indices_or_sections=(width // 2,), axis=axis)
    gate = node.composed(activations.gelu, node.field(halves, 1))
    return node.call(op.multiply, node.field(halves, 0), gate)


@converts(contrib("BiasAdd"))
def bias_add(node: Node) -> Expr:
    """Compute x + bias + skip."""
    biased = node.call(op.add, node.input(0), node.input(1))
    return node.call(op.add, biased, node.input(2))
