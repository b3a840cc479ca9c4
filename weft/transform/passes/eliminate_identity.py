"""Eliminate calls that return their operand unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from weft.ir import Call, Expr, Function, Op, TensorType, Tuple, TupleGetItem, has_any
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, rewrite_function, traits_of


@register_pass
@dataclass(frozen=True)
class EliminateIdentity(FunctionPass):
    """Replace calls that return their operand unchanged by the operand.

    These are: operators with the trait ``is_identity_at_same_type`` (``cast``, ``reshape``,
    ``nn.pad``) whose result has the operand's type; calls for which the hook ``identity`` returns
    an operand (``copy``, full slices, identity transposes, concatenation of one tensor, the data
    result of ``nn.dropout``); and a tuple of all fields of one tuple.

    def @main(%x: Tensor[(2, 3), float32]) {
      %0 = reshape(copy(%x), newshape=(2, 3));
      transpose(cast(%0, dtype="float32"), axes=(0, 1))
    }
    =>
    def @main(%x: Tensor[(2, 3), float32]) { %x }
    """

    name: ClassVar[str] = "eliminate_identity"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, lambda _, node: _operand_of_identity(node) or node)


def _operand_of_identity(node: Expr) -> Expr | None:
    if isinstance(node, TupleGetItem):
        whole = node.tuple_value
        if isinstance(whole, Tuple):
            return whole.fields[node.index]
        return _by_rule(whole) if node.index == 0 else None  # the first of several results
    if isinstance(node, Tuple):
        return _same_tuple(node)
    if traits_of(node).is_identity_at_same_type and isinstance(node, Call):
        return _if_same_type(node)
    has_one = isinstance(node, Call) and isinstance(node.op, Op) and node.op.results == 1
    return _by_rule(node) if has_one else None


def _by_rule(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return None
    rule: Callable[[Call], Expr | None] | None = node.op.hook("identity")
    return rule(node) if rule is not None else None


def _same_tuple(node: Tuple) -> Expr | None:
    first = node.fields[0] if node.fields else None
    if not isinstance(first, TupleGetItem):
        return None
    whole = first.tuple_value
    same = all(
        isinstance(f, TupleGetItem) and f.tuple_value is whole and f.index == i
        for i, f in enumerate(node.fields)
    )
    return whole if same and known_type(whole) == known_type(node) else None


def _if_same_type(call: Call) -> Expr | None:
    type_ = known_type(call)
    # Two unknown sizes are equal as types, but may differ at run time.
    if not isinstance(type_, TensorType) or has_any(type_.shape):
        return None
    return call.args[0] if known_type(call.args[0]) == type_ else None
