"""Converters of tensor operators of classic machine learning (domain ai.onnx.ml)."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Expr

_DOMAIN = "ai.onnx.ml"


@converts(f"{_DOMAIN}::ArrayFeatureExtractor")
def array_feature_extractor(node: Node) -> Expr:
    """Take elements of the last axis at the given indices."""
    positions = reshape_to(node, node.input(1), (-1,))
    return node.call(op.take, node.input(0), positions, axis=node.rank() - 1, mode="clip")


@converts(f"{_DOMAIN}::Binarizer", attributes=("threshold",))
def binarizer(node: Node) -> Expr:
    """1 above the threshold, else 0."""
    x = node.input(0)
    above = node.call(op.greater, x, node.scalar_like(node.attrs.number("threshold", 0.0), x))
    return node.call(op.cast, above, dtype=node.dtype().name)
