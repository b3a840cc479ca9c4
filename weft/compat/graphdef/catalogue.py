"""Nodes whose operator is one of weft's: ``nn.relu``, ``concatenate``.

The inputs of a node are tensors. ``_operands`` says which of them form a tuple: one number for each
operand of the operator, -1 for a tensor and a count for a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compat.graphdef.node import Node, attrs_without_private
from weft.ir import Expr, Op, TensorType, Tuple, TupleType, get_op

OPERANDS = "_operands"
TENSOR = -1


def convert_operator(node: Node) -> Sequence[Expr]:
    """The results of a node of the catalogue, one for each tensor of a tuple."""
    op = get_op(node.op)
    operands = tuple(_grouped(node, op))
    result = node.call(op, *operands, **attrs_without_private(node.proto.attrs))
    type_ = result.checked_type
    if isinstance(type_, TupleType):
        return node.fields(result, len(type_.fields))
    return (result,)


def _grouped(node: Node, op: Op) -> list[Expr]:
    groups = node.sizes(OPERANDS, ())
    if not groups:
        if len(op.inputs) == 1 and op.inputs[0].startswith("*"):
            return [Tuple(node.inputs, span=node.span)]
        return list(node.inputs)
    needed = sum(1 if size == TENSOR else size for size in groups)
    if needed != len(node.inputs):
        raise node.fail("the number of inputs is not that of its operands",
                        expected=str(needed), got=str(len(node.inputs)))
    found: list[Expr] = []
    at = 0
    for size in groups:
        if size == TENSOR:
            found.append(node.inputs[at])
            at += 1
        else:
            found.append(Tuple(node.inputs[at:at + size], span=node.span))
            at += size
    return found


def operand_sizes(op: Op, types: Sequence[object]) -> tuple[int, ...]:
    """``_operands`` for operands of these types; empty where the operator alone determines it."""
    variadic = len(op.inputs) == 1 and op.inputs[0].startswith("*")
    if variadic or all(isinstance(t, TensorType) for t in types):
        return ()
    return tuple(len(t.fields) if isinstance(t, TupleType) else TENSOR for t in types)
