"""Algebraic simplification by rewrite rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.rewrite.driver import apply_rules
from weft.transform.analysis.graph import as_function, enters
from weft.transform.rules import SIMPLIFICATIONS


@register_pass
@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Apply the rules of ``transform/rules`` until none does, operands first.

    ``config["rewrite_stats"]`` of the context may hold a ``RewriteStats`` to be filled.

    def @main(%x: Tensor[(4,), float32]) { nn.relu(nn.relu(multiply(add(%x, 0f), 1f))) }
    =>
    def @main(%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """

    name: ClassVar[str] = "simplify_expr"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:
        stats = ctx.config.get("rewrite_stats")
        return as_function(apply_rules(fn, SIMPLIFICATIONS, stats=stats, enter=enters))
