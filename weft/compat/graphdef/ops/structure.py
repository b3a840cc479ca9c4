"""Constants, identities and nodes that only order others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Constant, Expr


@converts("Const", "HostConst", inputs=0, attributes=("value", "dtype"))
def constant(node: Node) -> Expr:
    value = node.proto.attrs.get("value")
    if isinstance(value, np.generic):  # a scalar of NumPy, in a definition written in Python
        return Constant(np.asarray(value), span=node.span)
    return Constant(node.attr("value", np.ndarray), span=node.span)


@converts("Identity", "Snapshot", "PreventGradient", "EnsureShape", "CheckNumerics", "DeepCopy",
          inputs=1, attributes=("message", "shape"))
def identity(node: Node) -> Expr:
    return node.input(0)


@converts("StopGradient", inputs=1)
def stop_gradient(node: Node) -> Expr:
    return node.call(op.annotation.stop_gradient, node.input(0))


@converts("IdentityN", outputs=("output",))
def identities(node: Node) -> Sequence[Expr]:
    return node.inputs


@converts("PlaceholderWithDefault", inputs=1, attributes=("dtype", "shape"))
def placeholder_with_default(node: Node) -> Expr:
    return node.input(0)


@converts("NoOp", "ControlTrigger", "Assert", "Print", attributes=(
    "summarize", "message", "first_n", "data"), outputs=())
def no_result(node: Node) -> Sequence[Expr]:
    return node.inputs[:1] if node.op == "Print" else ()
