"""The tensor expressions of one operator call, for decisions about calls that are not fused."""

from __future__ import annotations

from weft import te
from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.symbol import typical_size
from weft.ir.types import TensorType
from weft.support.errors import InternalError


def tensors_of_call(call: Call) -> tuple[te.Tensor, ...]:
    """What the operator computes; symbolic dimensions have their typical sizes.

    Raises ``InternalError`` for a call of anything but an operator with a compute.
    """
    if not isinstance(call.op, Op) or call.op.compute is None:
        raise InternalError("only operators with a compute have tensor expressions")
    inputs = [te.placeholder(_sizes(arg.checked_type), dtype) for arg in call.args
              if (dtype := getattr(arg.checked_type, "dtype", None)) is not None]
    result = call.op.compute(*inputs, call.attrs)
    return result if isinstance(result, tuple) else (result,)


def _sizes(type_: object) -> list[int]:
    shape = type_.shape if isinstance(type_, TensorType) else ()
    return list(map(typical_size, shape))
