"""The work of a kernel, counted from its computes: floating-point operations and bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from weft import te
from weft.runtime.sizes import Size
from weft.strategy.analysis import computes_below
from weft.te import ExternOp, loads_of
from weft.tir import Analyzer, FloatImm, IntImm, PrimExpr, ProducerLoad, Reduce, const, int_value
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


def count_bytes(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> Size:
    """Bytes that a kernel has to move: every result once, and every input as far as it is read.

    Of an input that a compute reads in fewer places than it has elements, as the table of an
    embedding or the operand of a slice, these places are counted.
    """
    analyzer = Analyzer()
    places = _places_read(inputs, outputs)
    total = const(0)
    for tensor in (*inputs, *outputs):
        size = functools.reduce(lambda a, b: a * b, tensor.shape, const(1))
        elements = int_value(analyzer.simplify(size))
        read = places.get(id(tensor.op))
        if elements is not None and read is not None:
            size = const(min(elements, read))
        total = total + size * tensor.dtype.itemsize
    return size_text(analyzer.simplify(total))


def _places_read(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> dict[int, int]:
    """An upper bound of the elements that computes read of each input, where one is known."""
    computes = computes_below(outputs)
    known = {id(t.op) for t in inputs}
    made = {id(op) for op in computes}
    places: dict[int, int] = {}
    for compute in computes:
        extents = [int_value(axis.extent) for axis in (*compute.axis, *compute.reduce_axis)]
        for load in loads_of(compute.body):
            key = id(load.producer.op)
            if key in known and None not in extents:
                places[key] = places.get(key, 0) + math.prod(e for e in extents if e is not None)
            elif key not in made:
                return {}  # a symbolic extent, or the result of an extern body or a scan
    return places if all(id(t.op) in made for t in outputs) else {}
