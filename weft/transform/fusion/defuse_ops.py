"""The inverse of operator fusion."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, is_primitive


@ir.register_pass
@dataclass(frozen=True)
class DefuseOps(ir.FunctionPass):
    """Replace each call of a primitive function by its body.

    def @main(%x: Tensor[(4,), float32]) {
      %0 = fn (%p0: Tensor[(4,), float32], primitive=True) { exp(negative(%p0)) };
      %0(%x)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }
    """

    name: ClassVar[str] = "defuse_ops"
    opt_level: ClassVar[int] = 0

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        return as_function(ir.rewrite_post_order(fn, _inline))


def _inline(node: ir.Expr) -> ir.Expr:
    if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Function):
        return node
    if not is_primitive(node.op):
        return node
    return ir.substitute(node.op.body, dict(zip(node.op.params, node.args, strict=True)))
