"""How much arithmetic a kernel does, counted from its computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.tir.expr import PrimExpr, Reduce, int_value


def count_flops(outputs: Sequence[te.Tensor]) -> int:
    """Operations of all computes below ``outputs``: two a reduction step, else one an element."""
    total = 0
    seen: set[int] = set()
    pending = [t.op for t in outputs]
    while pending:
        op = pending.pop()
        if id(op) in seen or not isinstance(op, te.ComputeOp):
            continue
        seen.add(id(op))
        pending.extend(t.op for t in op.input_tensors)
        total += _flops_of(op)
    return total


def _flops_of(op: te.ComputeOp) -> int:
    elements = math.prod(extent(axis) for axis in op.axis)
    if isinstance(op.body[0], Reduce):
        return 2 * elements * math.prod(extent(axis) for axis in op.reduce_axis)
    return elements if _computes(op.body[0]) else 0


def _computes(body: PrimExpr) -> bool:
    """Whether a body does more than move an element."""
    return op_kind(body) not in ("ProducerLoad", "IntImm", "FloatImm")


def op_kind(body: PrimExpr) -> str:
    return type(body).__name__


def extent(axis: te.IterVar) -> int:
    """The fixed extent of an axis."""
    size = int_value(axis.extent)
    return 1 if size is None else size
