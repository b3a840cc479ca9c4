"""The floating-point operations of a kernel, counted from its computes."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import computes_below, elements, work_of
from weft.te.tensor import ExternOp
from weft.tir.expr import FloatImm, IntImm, PrimExpr, ProducerLoad, Reduce


def count_flops(outputs: Sequence[te.Tensor]) -> int:
    """Operations of the computes of ``outputs``: two per reduction step, else one per element.

    Extern bodies declare their own number (``te.extern(flops=...)``).
    """
    bodies = {id(t.op): t.op for t in outputs if isinstance(t.op, ExternOp)}
    declared = sum(op.flops + count_flops(op.inputs) for op in bodies.values())
    return declared + sum(_flops_of(op) for op in computes_below(outputs))


def _flops_of(op: te.ComputeOp) -> int:
    if isinstance(op.body[0], Reduce):
        return 2 * work_of(op)
    return elements(op) if _computes(op.body[0]) else 0


def _computes(body: PrimExpr) -> bool:
    """Whether a body is more than a copy or a constant."""
    return not isinstance(body, (ProducerLoad, IntImm, FloatImm))
