"""Graph normal form: pure values are shared nodes instead of let bindings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import (
    Call,
    Constructor,
    Expr,
    Function,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
)
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import children, post_order, rebuild
from weft.transform.graph import enters


@register_pass
@dataclass(frozen=True)
class ToGraphNormalForm(FunctionPass):
    """Replace let-bound variables by the shared node that they stand for.

    Bindings whose place in the order of evaluation matters stay: those that touch references or
    call functions that might, and functions, which may call themselves by their name.

    def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); add(%a, %a) }
    =>
    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); add(%0, %0) }
    """

    name: ClassVar[str] = "to_graph_normal_form"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:
        order = list(post_order(fn, enter=enters))
        ordered = _order_matters(order)
        inlined = {
            node: node.value for node in order if isinstance(node, Let) and node.value not in ordered
        }
        named: dict[Expr, list[Expr]] = {}
        for let, value in inlined.items():
            named.setdefault(value, []).append(let.var)
        memo: dict[Expr, Expr] = {}
        for node in order:
            if node in inlined:
                result = memo[node.body]  # type: ignore[attr-defined]
            elif node in memo:  # a variable whose value came first
                result = memo[node]
            else:
                result = _rebuilt(node, memo)
            memo[node] = result
            for var in named.get(node, ()):
                memo[var] = result
        return memo[fn]  # type: ignore[return-value]


def _rebuilt(node: Expr, memo: dict[Expr, Expr]) -> Expr:
    old = children(node) if enters(node) else ()
    parts = [memo[c] for c in old]
    if all(a is b for a, b in zip(old, parts, strict=True)):
        return node
    return rebuild(node, parts, checked_type=node.checked_type)


def _order_matters(order: list[Expr]) -> set[Expr]:
    found: set[Expr] = set()
    for node in order:
        if not enters(node):
            continue
        if _is_ordered(node) or any(child in found for child in children(node)):
            found.add(node)
    return found


def _is_ordered(node: Expr) -> bool:
    if isinstance(node, Call):
        return not isinstance(node.op, (Op, Constructor, Function))
    return isinstance(node, (RefCreate, RefRead, RefWrite, Function))
