"""Variables: the types of their reads and updates; ``state.py`` gives them their meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir import Expr, TensorType, Var

_VARIABLE = ("dtype", "shape", "container", "shared_name", "allowed_devices", "debug_name")
_ASSIGN = ("validate_shape", "use_locking", "dtype")


@converts("VariableV2", "Variable", "VarHandleOp", inputs=0, attributes=_VARIABLE,
          outputs=("ref",))
def variable(node: Node) -> Expr:
    """A handle has the type of the variable."""
    value = node.proto.attrs.get("_initial_value")
    if isinstance(value, np.ndarray):
        shape: tuple[int | None, ...] | None = value.shape
    else:
        shape = node.shape_attr("shape")
    if shape is None or None in shape:
        raise node.unsupported("a variable needs a fixed shape", got=str(shape))
    type_ = TensorType(tuple(n for n in shape if n is not None), node.dtype("dtype"))
    return Var(node.proto.name, type_, span=node.span, checked_type=type_)


@converts("ReadVariableOp", inputs=1, attributes=("dtype",), outputs=("value",))
def read(node: Node) -> Expr:
    return node.input(0)


def _check_value(node: Node) -> None:
    if node.type(0) != node.type(1):
        raise node.fail("the value does not have the type of the variable",
                        expected=str(node.type(0)), got=str(node.type(1)))


@converts("Assign", inputs=2, attributes=_ASSIGN, outputs=("output_ref",))
def assign(node: Node) -> Expr:
    _check_value(node)
    return node.input(1)


@converts("AssignVariableOp", inputs=2, attributes=_ASSIGN, outputs=())
def assign_resource(node: Node) -> Sequence[Expr]:
    _check_value(node)
    return ()


@converts("AssignAdd", "AssignSub", inputs=2, attributes=_ASSIGN, outputs=("output_ref",))
def assign_changed(node: Node) -> Expr:
    _check_value(node)
    operator = op.add if node.op == "AssignAdd" else op.subtract
    return node.call(operator, node.input(0), node.input(1))


@converts("AssignAddVariableOp", "AssignSubVariableOp", inputs=2, attributes=_ASSIGN, outputs=())
def assign_changed_resource(node: Node) -> Sequence[Expr]:
    _check_value(node)
    return ()
