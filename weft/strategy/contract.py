"""Checks that a compute returns the tensors that the operator's type relation declares.

Memory is allocated by the declared shapes, so a compute of another shape would write out of bounds.
The error names both the compute and the relation: either may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te
from weft.ir import Call, Op, TensorType, TupleType, dims_equal
from weft.ir.dynamic import depends_on_data
from weft.support.errors import OperatorError
from weft.support.user_code import location_of


def check_compute(call: Call, op: Op, compute: Callable[..., Any], result: Any) -> None:
    """Raise ``OperatorError`` unless ``result`` has the type of ``call``."""
    tensors = result if isinstance(result, tuple) else (result,)
    wrong = [type(t).__name__ for t in tensors if not isinstance(t, te.Tensor)]
    if wrong or not tensors:
        raise OperatorError(
            f"the compute of {op.name} does not return a tensor", where=location_of(compute),
            expected="a te.Tensor, or a tuple of them", got=", ".join(wrong) or "nothing",
            help="return the result of te.compute or te.extern",
        )
    if depends_on_data(op) or call.checked_type is None:
        return  # data-dependent shape: the compute fills an upper bound and returns the real size
    declared = _declared(call)
    agree = len(tensors) == len(declared) and all(map(_has_type, tensors, declared))
    if not agree:
        raise OperatorError(
            f"the compute of {op.name} contradicts its type relation",
            where=location_of(compute),
            expected=f"{', '.join(map(str, declared))}, the relation's result for "
                     f"{_arguments(call)}",
            got=", ".join(map(_type_text, tensors)),
            notes=_relation_note(op),
        )


def _declared(call: Call) -> tuple[TensorType, ...]:
    type_ = call.checked_type
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return tuple(f for f in fields if isinstance(f, TensorType))


def _has_type(tensor: te.Tensor, type_: TensorType) -> bool:
    shape = tensor.static_shape
    return tensor.dtype == type_.dtype and tensor.ndim == type_.ndim and (
        shape is None or all(dims_equal(a, b) is not False
                             for a, b in zip(shape, type_.shape, strict=True)))


def _arguments(call: Call) -> str:
    return ", ".join(str(a.checked_type) for a in call.args)


def _type_text(tensor: te.Tensor) -> str:
    sizes = ", ".join(map(str, tensor.shape)) + ("," if tensor.ndim == 1 else "")
    return f"Tensor[({sizes}), {tensor.dtype}]"


def _relation_note(op: Op) -> tuple[str, ...]:
    return () if op.relation is None else (f"relation: {location_of(op.relation)}",)
