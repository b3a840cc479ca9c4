"""Nodes of dataflow frames, for the types of their results.

``frames.py`` replaces them before a graph is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr


@converts("Enter", "Exit", "NextIteration", "LoopCond", inputs=1,
          attributes=("frame_name", "is_constant"))
def forwarded(node: Node) -> Expr:
    return node.input(0)


@converts("Switch", inputs=2, outputs=("output_false", "output_true"))
def switch(node: Node) -> Sequence[Expr]:
    return node.input(0), node.input(0)


@converts("Merge", outputs=("output", "value_index"))
def merge(node: Node) -> Sequence[Expr]:
    return node.input(0), node.constant(0)
