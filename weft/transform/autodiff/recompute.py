"""Rematerialization: recompute cheap values instead of keeping them in memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Call, Expr, Function
from weft.ir.op import Op, OpPattern
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import children, post_order, replace_children
from weft.transform.analysis.graph import as_function, enters


@register_pass
@dataclass(frozen=True)
class Recompute(FunctionPass):
    """Recompute cheap values for uses ``distance`` or more calls later (NNVM's mirror).

    A program with gradients reads values of its forward pass long after they were computed, and
    they occupy memory until then. Elementwise and broadcast calls without the trait
    ``is_expensive``, and calls of ``ops``, are recomputed for late uses from operands that are
    recomputed or kept; ``expensive`` names other operators to keep than the trait does. With
    ``everything``, all calls are recomputed except those of ``annotation.checkpoint``, whose
    values are kept (Chen et al. 2016). Run it after ``eliminate_common_subexpr``, which undoes it.

    With ``distance=2``:

    def @main(%x: Tensor[(4,), float32]) {
      %0 = nn.relu(%x);
      multiply(nn.softmax(nn.softmax(%0)), %0)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      multiply(nn.softmax(nn.softmax(nn.relu(%x))), nn.relu(%x))
    }
    """

    name: ClassVar[str] = "recompute"
    opt_level: ClassVar[int] = 0
    distance: int = 32
    ops: tuple[str, ...] = ()
    expensive: tuple[str, ...] | None = None
    everything: bool = False

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        order = [n for n in post_order(fn, enter=enters) if isinstance(n, Call)]
        position: dict[Expr, int] = {node: i for i, node in enumerate(order)}
        memo: dict[Expr, Expr] = {}
        copies: dict[tuple[Expr, int], Expr] = {}
        for node in post_order(fn, enter=enters):
            at = position.get(node, 0)
            old = children(node) if enters(node) else ()
            is_call = node in position
            parts = [
                self._operand(c, at, position, memo, copies) if is_call else memo[c] for c in old
            ]
            memo[node] = replace_children(node, parts) if parts else node
        return as_function(memo[fn])

    def _operand(
        self,
        node: Expr,
        at: int,
        position: dict[Expr, int],
        memo: dict[Expr, Expr],
        copies: dict[tuple[Expr, int], Expr],
    ) -> Expr:
        """``node``, or for a distant use at position ``at`` a copy shared with uses nearby."""
        if not self._is_cheap(node) or at - position[node] < self.distance:
            return memo[node]
        # Late uses at similar positions share one copy.
        key = node, at // max(self.distance, 1)
        if key not in copies:
            # Nodes are compared by identity, so a copy is a second computation.
            copies[key] = dataclasses.replace(memo[node])
        return copies[key]

    def _is_cheap(self, node: Expr) -> bool:
        if not isinstance(node, Call) or not isinstance(node.op, Op) or not node.args:
            return False
        if self.everything or node.op.name in self.ops:
            return node.op.name != "annotation.checkpoint"
        if node.op.pattern > OpPattern.BROADCAST:
            return False
        if self.expensive is None:
            return not node.op.traits.is_expensive
        return node.op.name not in self.expensive
