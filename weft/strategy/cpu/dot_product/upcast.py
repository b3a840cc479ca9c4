"""Contractions of bytes with constant weights, rewritten for CPUs that multiply int16 by int16."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Constant, Expr, TensorType
from weft.strategy.cpu.dot_product.instruction import upcast_dtype
from weft.target import CpuTarget


def upcast_operands(
    call: Call, data: TensorType, weight: TensorType, target: CpuTarget
) -> Expr | None:
    """The contraction of both operands in the dtype that the instruction takes.

    The weight is converted when the program is compiled, the data in the kernel that computes it.
    ``None`` where the call is fast as it is, or the weight is no constant.
    """
    constant = call.args[1]
    if not isinstance(constant, Constant):
        return None
    wanted = upcast_dtype(data.dtype, weight.dtype, target)
    if wanted is None:
        return None
    upcast = Constant(constant.data.astype(wanted.numpy), span=constant.span)
    return call.replace(args=(op.cast(call.args[0], dtype=wanted, span=call.span), upcast),
                        checked_type=None)
