"""Gradients of functions of the library."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr


@converts("SymbolicGradient", attributes=("f",))
def symbolic_gradient(node: Node) -> Sequence[Expr]:
    """The operands are the arguments of ``f``, then the gradient of each of its results."""
    return node.functions.gradient(node.function("f"), node.inputs)
