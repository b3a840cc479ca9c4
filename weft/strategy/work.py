"""The floating-point operations of a kernel, counted from its computes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from weft import te
from weft.runtime.sizes import Size
from weft.strategy.analysis import computes_below
from weft.te.tensor import ExternOp
from weft.tir.expr import FloatImm, IntImm, PrimExpr, ProducerLoad, Reduce, const
from weft.tir.simplify import Analyzer
from weft.tir.size_text import size_text


def count_flops(outputs: Sequence[te.Tensor]) -> Size:
    """Operations of the computes of ``outputs``: two per reduction step, else one per element.

    Extern bodies declare their own number (``te.extern(flops=...)``).
    """
    analyzer = Analyzer()
    return size_text(analyzer.simplify(_total_flops(outputs)))


def _total_flops(outputs: Sequence[te.Tensor]) -> PrimExpr:
    total = const(0)
    for op in {id(t.op): t.op for t in outputs if isinstance(t.op, ExternOp)}.values():
        total = total + op.flops + _total_flops(op.inputs)
    for compute in computes_below(outputs):
        total = total + _flops_of(compute)
    return total


def _flops_of(op: te.ComputeOp) -> PrimExpr:
    axes = (*op.axis, *op.reduce_axis)
    per_iteration = 2 if isinstance(op.body[0], Reduce) else int(_computes(op.body[0]))
    return functools.reduce(lambda total, axis: total * axis.extent, axes, const(per_iteration))


def _computes(body: PrimExpr) -> bool:
    """Whether a body is more than a copy or a constant."""
    return not isinstance(body, (ProducerLoad, IntImm, FloatImm))
