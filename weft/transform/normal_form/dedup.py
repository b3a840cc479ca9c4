"""Deduplicate binders: make every variable bound exactly once."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from weft.ir.expr import Expr, Function, Var
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import binders, children, post_order, replace_children
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function
from weft.transform.normal_form.alpha import fresh_copy


@register_pass
@dataclass(frozen=True)
class Dedup(FunctionPass):
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

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        bound = Counter(v for node in post_order(fn) for v in binders(node))
        if all(count == 1 for count in bound.values()):
            return fn
        memo: dict[Expr, Expr] = {}
        for node in post_order(fn):
            rebuilt = replace_children(node, [memo[c] for c in children(node)])
            memo[node] = _renamed(rebuilt, binders(node), bound)
        return as_function(memo[fn])


def _renamed(node: Expr, variables: tuple[Var, ...], bound: Counter[Var]) -> Expr:
    """``node`` with new variables if a later binder binds one of them again."""
    # Inner binders come first in post-order; the last binder of a variable keeps it.
    repeated = any(bound[v] > 1 for v in variables)
    bound.subtract(variables)
    return fresh_copy(node) if repeated else node
