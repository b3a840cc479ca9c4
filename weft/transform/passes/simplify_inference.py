"""Replace operators of training by their inference behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from weft.ir import Call, Expr, Function, Op, Tuple, TupleGetItem
from weft.ir.contents import Seeks
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import rewrite_function


@register_pass
@dataclass(frozen=True)
class SimplifyInference(FunctionPass):
    """Turn batch norm into a scale and a shift; replace dropout and ``stop_gradient`` by ``x``.

    With constant statistics, as in a trained model, scale and shift are constants too. The rules
    are the ``inference_form`` of the operators.

    def @main(%x: Tensor[(1, 2, 4, 4), float32], %s: Tensor[(2,), float32]) {
      %0 = nn.dropout(%x, rate=0.5);
      annotation.stop_gradient(nn.relu(%0.0))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4, 4), float32], %s: Tensor[(2,), float32]) { nn.relu(%x) }
    """

    name: ClassVar[str] = "simplify_inference"
    opt_level: ClassVar[int] = 0
    seeks: ClassVar[Seeks] = Seeks(kinds=(TupleGetItem,), hooks=("inference_form",))

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, _simplify, (Call, TupleGetItem))


def _simplify(_: Expr, node: Expr) -> Expr:
    if isinstance(node, TupleGetItem):
        return field_of_tuple(node)
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return node
    rule: Callable[[Call], Expr] | None = node.op.hook("inference_form")
    return node if rule is None else rule(node)


def field_of_tuple(node: TupleGetItem) -> Expr:
    """The field itself, if the operand constructs the tuple."""
    whole = node.tuple_value
    return whole.fields[node.index] if isinstance(whole, Tuple) else node
