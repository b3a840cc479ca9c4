"""Canonicalization: one spelling for each computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from weft.ir import (
    Call,
    Expr,
    Function,
    FunctionPass,
    Op,
    PassContext,
    Seeks,
    infer_expr,
    register_pass,
)
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, rewrite_function


@register_pass
@dataclass(frozen=True)
class CanonicalizeOps(FunctionPass):
    """Rewrite operators and attributes to a canonical spelling for later passes and strategies.

    ``nn.bias_add`` becomes ``add``, ``nn.batch_flatten`` becomes ``reshape``, a matrix
    multiplication with a constant becomes ``nn.dense``; pooling and convolutions get explicit
    padding on every side, and convolutions their channels and kernel size: the ``canonical_form``
    of the operators. Others are replaced by their ``decomposition`` (transposed convolutions, ..).

    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      nn.batch_flatten(nn.bias_add(%x, %b, axis=1))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      reshape(add(%x, expand_dims(%b, axis=1, num_newaxis=1)), newshape=(1, 8))
    }
    """

    name: ClassVar[str] = "canonicalize_ops"
    opt_level: ClassVar[int] = 0
    seeks: ClassVar[Seeks] = Seeks(hooks=("canonical_form", "decomposition"))

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, _canonicalize, (Call,))


def _canonicalize(_: Expr, node: Expr) -> Expr:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return node
    rule: Callable[[Call], Expr | None] | None = node.op.hook("canonical_form")
    found = rule(node) if rule is not None else None
    return decomposed(node) if found is None else found


def decomposed(call: Call, table: str = "decomposition") -> Expr:
    """The result of the operator's hook in ``table``, typed; ``call`` itself without one."""
    hook = call.op.hook(table) if isinstance(call.op, Op) else None
    simpler = hook(call) if hook is not None and all(map(known_type, call.args)) else None
    return call if simpler is None else infer_expr(simpler, trust=True)
