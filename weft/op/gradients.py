"""What gradients of operators are written with.

A gradient hook gets the call (typed), its result ``y`` and the gradient ``dy`` of that result,
and returns one gradient for each argument, as an expression of that argument's type.
"""

from __future__ import annotations

from typing import TypeVar

from weft.ir.attrs import Attrs
from weft.ir.expr import Call, Constant, Expr, const
from weft.ir.op import get_op
from weft.ir.types import TensorType
from weft.support.errors import InternalError, TypeInferenceError

A = TypeVar("A", bound=Attrs)


def tensor_type(expr: Expr) -> TensorType:
    """The type of a typed tensor; raises ``TypeInferenceError`` for anything else."""
    if not isinstance(expr.checked_type, TensorType):
        raise TypeInferenceError("a gradient needs typed tensors", where=expr.span,
                                 got=expr.checked_type, help="run infer_type first")
    return expr.checked_type


def attrs_of(call: Call, kind: type[A]) -> A:
    """The attributes of a call as the record that its operator was declared with."""
    if not isinstance(call.attrs, kind):
        raise InternalError("a call has attributes of another operator",
                            expected=kind.__name__, got=type(call.attrs).__name__)
    return call.attrs


def scalar(value: float, like: Expr) -> Constant:
    """``value`` in the dtype of ``like``."""
    return const(value, tensor_type(like).dtype)


def sum_to(gradient: Expr, source: TensorType, target: TensorType) -> Expr:
    """``gradient``, of the shape of ``source``, summed over the axes along which ``target`` was
    broadcast to it.
    """
    if source.shape == target.shape:
        return gradient
    lead = source.ndim - target.ndim
    repeated = tuple(
        axis for axis, size in enumerate(source.shape)
        if axis < lead or (target.shape[axis - lead] == 1 and size != 1)
    )
    summed = get_op("sum")(gradient, axis=repeated, keepdims=True) if repeated else gradient
    return get_op("squeeze")(summed, axis=tuple(range(lead))) if lead else summed


def broadcast_gradients(call: Call, left: Expr, right: Expr) -> list[Expr]:
    """The gradients of a broadcasting call from those of the broadcast operands."""
    source = tensor_type(call)
    return [sum_to(g, source, tensor_type(a)) for g, a in zip((left, right), call.args,
                                                              strict=True)]
