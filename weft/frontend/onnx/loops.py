"""Loops of ONNX graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.frontend.common import loops
from weft.frontend.onnx.node import Node, Value
from weft.ir import Dim
from weft.ir.expr import Expr

# Unrolled iterations can be fused and share memory, but every copy is compiled.
MAX_UNROLLED_NODES = 4096


def run_loop(
    node: Node, trip_count: Expr, going: Expr, carried: tuple[Expr, ...],
    step: Callable[[Expr, Expr, Sequence[Expr]], Sequence[Value]], length: Dim | None = None,
) -> list[Expr]:
    """See ``weft.frontend.common.loops``; ``step`` may return sizes."""
    def tensors(i: Expr, going: Expr, state: Sequence[Expr]) -> list[Expr]:
        return list(map(node.tensor, step(i, going, state)))

    known = (*node.known.values(), *node.inputs)
    return loops.run_loop(loops.Loop(node, trip_count, going, carried, tensors, known, length))
