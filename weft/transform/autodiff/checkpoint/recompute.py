"""Rematerialization: recompute cheap values instead of keeping them in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

from weft import ir
from weft.op import annotation
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters


@ir.register_pass
@dataclass(frozen=True)
class Recompute(ir.FunctionPass):
    """Recompute cheap values for uses ``distance`` or more calls later (NNVM's mirror).

    A program with gradients reads values of its forward pass long after they were computed, and
    they occupy memory until then. Elementwise and broadcast calls without the trait
    ``is_expensive``, and calls of ``ops``, are recomputed for late uses from operands that are
    recomputed or kept; ``expensive`` names other operators to keep than the trait does. With
    ``everything``, all calls are recomputed except those of ``annotation.checkpoint``, whose
    values are kept (Chen et al. 2016). ``mirror``, a predicate of calls, replaces all of these.
    Where the user has another operand, the kept operands of a copy pass ``annotation.barrier``: it
    keeps the copy apart from the original, and late.

    With ``distance=2``:

    def @main(%x: Tensor[(4,), float32]) {
      %0 = nn.relu(%x);
      multiply(nn.softmax(nn.softmax(%0)), %0)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      %0 = nn.softmax(nn.softmax(nn.relu(%x)));
      multiply(%0, nn.relu(annotation.barrier(%x, %0)))
    }
    """

    name: ClassVar[str] = "recompute"
    opt_level: ClassVar[int] = 0
    distance: int = 32
    ops: tuple[str, ...] = ()
    expensive: tuple[str, ...] | None = None
    everything: bool = False
    mirror: Callable[[ir.Call], bool] | None = None

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        order = [n for n in ir.post_order(fn, enter=enters) if isinstance(n, ir.Call)]
        position: dict[ir.Expr, int] = {node: i for i, node in enumerate(order)}
        memo: dict[ir.Expr, ir.Expr] = {}
        copies: dict[tuple[ir.Expr, int], ir.Expr] = {}
        for node in ir.post_order(fn, enter=enters):
            old = ir.children(node) if enters(node) else ()
            parts = self._operands(node, old, position, memo, copies) if node in position \
                else [memo[c] for c in old]
            memo[node] = ir.replace_children(node, parts) if parts else node
        return as_function(memo[fn])

    def _operands(self, user: ir.Expr, operands: Sequence[ir.Expr], position: dict[ir.Expr, int],
                  memo: dict[ir.Expr, ir.Expr],
                  copies: dict[tuple[ir.Expr, int], ir.Expr]) -> list[ir.Expr]:
        """The operands of ``user``; for late uses, copies that neighbouring uses share."""
        at = position[user]
        far = [self._is_cheap(c) and at - position[c] >= self.distance for c in operands]
        kept = [memo[c] for c, is_far in zip(operands, far, strict=True)
                if not is_far and isinstance(c.checked_type, ir.TensorType)
                and not isinstance(c, (ir.Var, ir.Constant))]
        after = kept[-1] if kept else None
        # Late uses at similar positions share one copy.
        era = at // max(self.distance, 1)
        found = []
        for operand, is_far in zip(operands, far, strict=True):
            if is_far and (operand, era) not in copies:
                copies[operand, era] = self._copy(memo[operand], after)
            found.append(copies[operand, era] if is_far else memo[operand])
        return found

    def _copy(self, call: ir.Expr, after: ir.Expr | None) -> ir.Expr:
        """A second computation, from operands that are available after ``after``."""
        if after is None or not isinstance(call, ir.Call):
            # Nodes are compared by identity, so a copy is a second computation.
            return dataclasses.replace(call)
        args = tuple(annotation.barrier(a, after).with_type(a.checked_type)
                     if isinstance(a.checked_type, ir.TensorType) and not isinstance(a, ir.Constant)
                     else a for a in call.args)
        return dataclasses.replace(call, args=args)

    def _is_cheap(self, node: ir.Expr) -> bool:
        if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op) or not node.args:
            return False
        if node.op.traits.has_effect:
            return False
        if self.mirror is not None:
            return self.mirror(node)
        if self.everything or node.op.name in self.ops:
            return node.op.name != "annotation.checkpoint"
        if node.op.pattern > ir.OpPattern.BROADCAST:
            return False
        if self.expensive is None:
            return not node.op.traits.is_expensive
        return node.op.name not in self.expensive
