"""How much arithmetic a kernel does, counted from its computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import computes_below, elements, work_of
from weft.te.tensor import ExternOp
from weft.tir.expr import FloatImm, IntImm, PrimExpr, ProducerLoad, Reduce


def count_flops(outputs: Sequence[te.Tensor]) -> int:
    """Operations of all computes below ``outputs``: two a reduction step, else one an element.

    Bodies that are statements say themselves how many theirs are.
    """
    bodies = {id(t.op): t.op for t in outputs if isinstance(t.op, ExternOp)}
    stated = sum(op.flops + count_flops(op.inputs) for op in bodies.values())
    return stated + sum(_flops_of(op) for op in computes_below(outputs))


def _flops_of(op: te.ComputeOp) -> int:
    if isinstance(op.body[0], Reduce):
        return 2 * work_of(op)
    return elements(op) if _computes(op.body[0]) else 0


def _computes(body: PrimExpr) -> bool:
    """Whether a body does more than move an element."""
    return not isinstance(body, (ProducerLoad, IntImm, FloatImm))
