"""Eta expansion: wrap constructors and global functions that are used as values."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters


@ir.register_pass
@dataclass(frozen=True)
class EtaExpand(ir.FunctionPass):
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

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        memo: dict[ir.Expr, ir.Expr] = {}
        for node in ir.post_order(fn, enter=enters):
            old = ir.children(node) if enters(node) else ()
            callee = node.op if isinstance(node, ir.Call) else None
            parts = [c if c is callee else self._expanded(c, memo) for c in old]
            parts = [memo[c] if c is callee and not _is_name(c) else p
                     for c, p in zip(old, parts, strict=True)]
            memo[node] = ir.replace_children(node, parts) if parts else node
        return as_function(memo[fn])

    def _expanded(self, node: ir.Expr, memo: dict[ir.Expr, ir.Expr]) -> ir.Expr:
        wanted = (isinstance(node, ir.Constructor) and self.constructor) or (
            isinstance(node, ir.GlobalVar) and self.global_var
        )
        arity = _arity(node) if wanted else 0
        if arity == 0:
            return memo[node]
        type_ = node.checked_type
        known = None
        if isinstance(type_, ir.FuncType) and not type_.type_params:
            known = type_.arg_types
        params = tuple(
            ir.Var(f"a{i}", known[i] if known else None, span=node.span) for i in range(arity)
        )
        return ir.Function(params, ir.Call(node, params, span=node.span), span=node.span)


def _is_name(node: ir.Expr) -> bool:
    return isinstance(node, (ir.Constructor, ir.GlobalVar))


def _arity(node: ir.Expr) -> int:
    if isinstance(node, ir.Constructor):
        return len(node.inputs)
    return len(node.checked_type.arg_types) if isinstance(node.checked_type, ir.FuncType) else 0
