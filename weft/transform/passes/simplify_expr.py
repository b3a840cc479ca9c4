"""Algebraic simplification by rewrite rules."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Function, FunctionPass, PassContext, apply_rules, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters
from weft.transform.rules import SIMPLIFICATIONS


@register_pass
@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Apply the rules of ``transform/rules`` in post-order until none applies.

    The context's ``config`` may hold the rules to apply (``simplify_rules``, a ``RuleSet``), and a
    ``RewriteStats`` to fill (``rewrite_stats``).

    def @main(%x: Tensor[(4,), float32]) { nn.relu(nn.relu(multiply(add(%x, 0f), 1f))) }
    =>
    def @main(%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """

    name: ClassVar[str] = "simplify_expr"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:
        stats = ctx.config.get("rewrite_stats")
        rules = ctx.config.get("simplify_rules", SIMPLIFICATIONS)
        return as_function(apply_rules(fn, rules, stats=stats, enter=enters))
