"""What a compute must give: the tensors that the type relation has promised.

Kernels write into memory of the promised shapes, so a compute that gives others would write past
its end. Both belong to one operator; which of them is wrong only their author knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te
from weft.ir.dynamic import depends_on_data
from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.shape import dims_equal
from weft.ir.types import TensorType, TupleType
from weft.support.errors import OperatorError
from weft.support.user_code import place_of


def check_compute(call: Call, op: Op, compute: Callable[..., Any], result: Any) -> None:
    """Raise ``OperatorError`` unless ``result`` is what the type of ``call`` says."""
    tensors = result if isinstance(result, tuple) else (result,)
    stray = [type(t).__name__ for t in tensors if not isinstance(t, te.Tensor)]
    if stray or not tensors:
        raise OperatorError(
            f"the compute of {op.name} gives no tensor", where=place_of(compute),
            expected="a te.Tensor, or a tuple of them", got=", ".join(stray) or "nothing",
            help="return what te.compute or te.extern gave",
        )
    if depends_on_data(op) or call.checked_type is None:
        return  # the compute fills the result at its largest, and counts
    promised = _promised(call)
    agree = len(tensors) == len(promised) and all(map(_is_as_promised, tensors, promised))
    if not agree:
        raise OperatorError(
            f"the compute of {op.name} does not give what its relation says",
            where=place_of(compute),
            expected=f"{', '.join(map(str, promised))}, which the relation gives for "
                     f"{_arguments(call)}",
            got=", ".join(map(_type_text, tensors)),
            notes=_relation_note(op),
        )


def _promised(call: Call) -> tuple[TensorType, ...]:
    type_ = call.checked_type
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return tuple(f for f in fields if isinstance(f, TensorType))


def _is_as_promised(tensor: te.Tensor, type_: TensorType) -> bool:
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
    return () if op.relation is None else (f"relation: {place_of(op.relation)}",)
