"""Eta expansion: wrap constructors and global functions that are used as values."""

from __future__ import annotations

from typing import ClassVar

from weft.ir.expr import Call, Constructor, Expr, Function, GlobalVar, Var
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import FuncType
from weft.ir.visitor import children, post_order, replace_children
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters


@register_pass
@dataclass(frozen=True)
class EtaExpand(FunctionPass):
    """Eta expansion: wrap constructors (with ``global_var``, also globals) used as values.

    ``Cons`` as an argument becomes ``fn (%a, %b) { Cons(%a, %b) }``, so that constructors and
    globals only occur as callees. A constructor without fields is already a value.

    With ``global_var=True``:

    def @main(%x: Tensor[(4,), float32]) { @apply(@double, %x) }
    def @apply(%f: fn (Tensor[(4,), float32]) -> Tensor[(4,), float32],
               %x: Tensor[(4,), float32]) { %f(%x) }
    def @double(%x: Tensor[(4,), float32]) { add(%x, %x) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      @apply(fn (%a: Tensor[(4,), float32]) { @double(%a) }, %x)
    }
    def @apply(%f: fn (Tensor[(4,), float32]) -> Tensor[(4,), float32],
               %x: Tensor[(4,), float32]) { %f(%x) }
    def @double(%x: Tensor[(4,), float32]) { add(%x, %x) }
    """

    name: ClassVar[str] = "eta_expand"
    opt_level: ClassVar[int] = 1
    constructor: bool = True
    global_var: bool = False

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        memo: dict[Expr, Expr] = {}
        for node in post_order(fn, enter=enters):
            old = children(node) if enters(node) else ()
            callee = node.op if isinstance(node, Call) else None
            parts = [c if c is callee else self._expanded(c, memo) for c in old]
            parts = [memo[c] if c is callee and not _is_name(c) else p
                     for c, p in zip(old, parts, strict=True)]
            memo[node] = replace_children(node, parts) if parts else node
        return as_function(memo[fn])

    def _expanded(self, node: Expr, memo: dict[Expr, Expr]) -> Expr:
        wanted = (isinstance(node, Constructor) and self.constructor) or (
            isinstance(node, GlobalVar) and self.global_var
        )
        arity = _arity(node) if wanted else 0
        if arity == 0:
            return memo[node]
        type_ = node.checked_type
        known = type_.arg_types if isinstance(type_, FuncType) and not type_.type_params else None
        params = tuple(
            Var(f"a{i}", known[i] if known else None, span=node.span) for i in range(arity)
        )
        return Function(params, Call(node, params, span=node.span), span=node.span)


def _is_name(node: Expr) -> bool:
    return isinstance(node, (Constructor, GlobalVar))


def _arity(node: Expr) -> int:
    if isinstance(node, Constructor):
        return len(node.inputs)
    return len(node.checked_type.arg_types) if isinstance(node.checked_type, FuncType) else 0
