"""Graph normal form: pure values are shared nodes instead of let bindings."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import (
    Expr,
    Function,
    FunctionPass,
    Let,
    PassContext,
    Seeks,
    Var,
    post_order,
    register_pass,
)
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import ordered_nodes
from weft.transform.analysis.graph import as_function, enters, over_new_children


@register_pass
@dataclass(frozen=True)
class ToGraphNormalForm(FunctionPass):
    """Convert to graph normal form: replace let-bound variables by shared nodes.

    Bindings whose order of evaluation matters stay: those that touch references or call functions
    that might, and functions, which may call themselves by name.

    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); add(%a, %a) }
    =>
    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); add(%0, %0) }
    """

    name: ClassVar[str] = "to_graph_normal_form"
    opt_level: ClassVar[int] = 0
    seeks: ClassVar[Seeks] = Seeks(kinds=(Let,))
    provides: ClassVar[tuple[str, ...]] = ("graph_normal_form",)

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        order = list(post_order(fn, enter=enters))
        ordered = ordered_nodes(order)
        lets = (node for node in order if isinstance(node, Let))
        inlined: dict[Expr, Let] = {let: let for let in lets if let.value not in ordered}
        named: dict[Expr, list[Expr]] = {}
        for let in inlined.values():
            named.setdefault(let.value, []).append(let.var)
        memo: dict[Expr, Expr] = {}
        for node in order:
            if node in inlined:
                result = _known(inlined[node].body, memo)
            elif node in memo:  # a variable whose value was visited first
                result = memo[node]
            else:
                result = over_new_children(node, lambda c: _known(c, memo))
            memo[node] = result
            for var in named.get(node, ()):
                memo[var] = result
        return as_function(memo[fn])


def _known(node: Expr, memo: dict[Expr, Expr]) -> Expr:
    """The replacement of ``node``; a variable may stand for another one."""
    known = memo[node]
    while isinstance(known, Var) and memo.get(known, known) is not known:
        known = memo[known]
    return known
