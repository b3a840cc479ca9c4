"""Deduplicate binders: make every variable bound exactly once."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function
from weft.transform.normal_form.alpha import fresh_copy


@ir.register_pass
@dataclass(frozen=True)
class Dedup(ir.FunctionPass):
    """Rename variables that several nodes bind, so that each variable is bound exactly once.

    A program that was assembled by hand may use one variable in two binders, but every other pass
    relies on unique binders. The pass renames the inner binders, so uses of an outer one keep
    their meaning. Text cannot show the difference, because the parser makes a variable for every
    binder:

    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); let %a = exp(%a); %a }
    =>
    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); let %b = exp(%a); %b }
    """

    name: ClassVar[str] = "dedup"
    opt_level: ClassVar[int] = 0

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        bound = Counter(v for node in ir.post_order(fn) for v in ir.binders(node))
        if all(count == 1 for count in bound.values()):
            return fn
        memo: dict[ir.Expr, ir.Expr] = {}
        for node in ir.post_order(fn):
            rebuilt = ir.replace_children(node, [memo[c] for c in ir.children(node)])
            memo[node] = _renamed(rebuilt, ir.binders(node), bound)
        return as_function(memo[fn])


def _renamed(node: ir.Expr, variables: tuple[ir.Var, ...], bound: Counter[ir.Var]) -> ir.Expr:
    """``node`` with new variables if a later binder binds one of them again."""
    # Inner binders come first in post-order; the last binder of a variable keeps it.
    repeated = any(bound[v] > 1 for v in variables)
    bound.subtract(variables)
    return fresh_copy(node) if repeated else node
