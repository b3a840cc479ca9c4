"""The domain of ONNX Runtime's own operators, and helpers that their converters share."""

from __future__ import annotations

from dataclasses import replace

from weft.frontend.onnx.node import Node, Value

DOMAIN = "com.microsoft"


def contrib(op_type: str) -> str:
    """The registry name of an operator of the domain."""
    return f"{DOMAIN}::{op_type}"


def on_inputs(node: Node, *inputs: Value | None) -> Node:
    """Return ``node`` with other inputs, to call the converter of another operator."""
    return replace(node, inputs=inputs)
