"""Inlining conversions of narrow kernel arguments into the loops that read them."""

from __future__ import annotations

from weft import te
from weft.strategy.analysis import computes_below
from weft.strategy.implementation import ScheduleContext
from weft.te.tensor import PlaceholderOp
from weft.tir.expr import Cast, ProducerLoad


def inline_upcasts(ctx: ScheduleContext) -> None:
    """Inline each stage that only converts an argument of the kernel to a type with more bits.

    A kernel that computes in float32 on float16 arguments then converts each element as it loads
    it, without a float32 copy in memory. This runs before every implementation's own schedule.
    Three kinds of stages keep their memory: outputs; packed GEMM operands, whose loops read each
    element many times; and inputs of extern bodies, whose loops are written out already.
    """
    for op in computes_below(ctx.outputs):
        tensor = op.output(0)
        readers = ctx.schedule.consumers(ctx.schedule[tensor])
        is_read_by_computes = all(isinstance(reader.op, te.ComputeOp) for reader in readers)
        if tensor not in ctx.outputs and is_read_by_computes and _is_argument_upcast(op):
            ctx.schedule[tensor].compute_inline()


def _is_argument_upcast(op: te.ComputeOp) -> bool:
    body = op.body[0]
    if op.role in te.PACKED_OPERANDS:
        return False
    if not isinstance(body, Cast) or not isinstance(body.value, ProducerLoad):
        return False
    is_argument = isinstance(body.value.producer.op, PlaceholderOp)
    return is_argument and body.value.dtype.bits < body.dtype.bits
