"""Algebraic simplification by local rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Call, Expr, Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.support.errors import InternalError
from weft.transform.graph import op_name, rewrite_typed
from weft.transform.rules import SIMPLIFICATIONS
from weft.transform.rules.rule import LocalRule

# Every rule leaves a smaller or more canonical call, so chains of rewritings are short.
MAX_REWRITES = 100


@register_pass
@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Apply the rules of ``transform/rules`` until none does, operands first.

    def @main(%x: Tensor[(4,), float32]) { nn.relu(nn.relu(multiply(add(%x, 0f), 1f))) }
    =>
    def @main(%x: Tensor[(4,), float32]) { nn.relu(%x) }
    """

    name: ClassVar[str] = "simplify_expr"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:
        return rewrite_typed(fn, simplified)  # type: ignore[return-value]


def simplified(original: Expr, node: Expr) -> Expr:
    """``node`` after all rules; its operands are simplified already."""
    applied: list[str] = []
    while isinstance(node, Call):
        step = _first_that_applies(node)
        if step is None:
            return node
        rule, node = step
        if node.checked_type is None and original.checked_type is not None:
            node = node.with_type(original.checked_type)
        applied.append(rule.__name__)
        if len(applied) > MAX_REWRITES:
            raise InternalError(
                "simplification does not end",
                where=original.span,
                got=", ".join(dict.fromkeys(applied[-8:])),
                help="the rules named here undo each other",
            )
    return node


def _first_that_applies(call: Call) -> tuple[LocalRule, Expr] | None:
    for rule in SIMPLIFICATIONS.for_op(op_name(call)):
        result = rule(call)
        if result is not None:
            return rule, result
    return None
