"""Eliminate calls that return their operand unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from weft.ir.expr import Call, Expr, Function, Tuple, TupleGetItem
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import TensorType, has_any
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function, traits_of


@register_pass
@dataclass(frozen=True)
class EliminateIdentity(FunctionPass):
    """Replace calls that return their operand unchanged by the operand.

    These are: ``copy``; the data result of ``nn.dropout``; operators with the trait
    ``is_identity_at_same_type`` (``cast``, ``reshape``, ``nn.pad``) whose result has the operand's
    type; full slices; identity transposes; concatenation of one tensor; and a tuple of all fields
    of one tuple.

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
        if op_name(whole) == "nn.dropout" and isinstance(whole, Call) and node.index == 0:
            return whole.args[0]
    if isinstance(node, Tuple):
        return _same_tuple(node)
    if not isinstance(node, Call):
        return None
    if traits_of(node).is_identity_at_same_type:
        return _if_same_type(node)
    rule = _IDENTITIES.get(op_name(node))
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


def _transpose(call: Call) -> Expr | None:
    axes, type_ = call.attrs.axes, known_type(call)  # type: ignore[attr-defined]
    ndim = type_.ndim if isinstance(type_, TensorType) else 0
    order = tuple(a % ndim for a in axes) if axes else tuple(reversed(range(ndim)))
    return call.args[0] if order == tuple(range(ndim)) else None


def _strided_slice(call: Call) -> Expr | None:
    # A negative stride may keep the type and reverse the elements.
    forward = all(s > 0 for s in call.attrs.strides or ())  # type: ignore[attr-defined]
    return _if_same_type(call) if forward else None


def _concatenate(call: Call) -> Expr | None:
    fields = call.args[0]
    one = isinstance(fields, Tuple) and len(fields.fields) == 1
    return fields.fields[0] if one and isinstance(fields, Tuple) else None


def _layout_transform(call: Call) -> Expr | None:
    attrs: Any = call.attrs
    return call.args[0] if attrs.src_layout == attrs.dst_layout else None


_IDENTITIES: dict[str, Callable[[Call], Expr | None]] = {
    "concatenate": _concatenate,
    "copy": lambda call: call.args[0],
    "layout_transform": _layout_transform,
    "strided_slice": _strided_slice,
    "transpose": _transpose,
}
