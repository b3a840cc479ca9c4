"""Estimates of one call from the types of its arguments and result alone, without its schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.symbol import typical_size
from weft.ir.types import TensorType, TupleType, Type
from weft.strategy.cuda.machine_model import machine_model
from weft.target import CudaTarget

# Operations of an expensive operator (``OpTraits.is_expensive``) per element: a polynomial.
_EXPENSIVE_OPERATIONS = 20


def roofline_seconds(call: Call, target: CudaTarget) -> float:
    """Seconds of a launch that moves all operands and results once, a thread per element.

    One operation per element of the largest tensor, a polynomial's for expensive operators.
    Symbolic dimensions count as their typical size.
    """
    tensors = [t for x in (call, *call.args) for t in _tensors(x.checked_type)]
    moved = sum(_elements(t) * t.dtype.itemsize for t in tensors)
    operations = max(map(_elements, tensors), default=0)
    expensive = isinstance(call.op, Op) and call.op.traits.is_expensive
    return machine_model(target).kernel_seconds(
        moved, operations * (_EXPENSIVE_OPERATIONS if expensive else 1), max(1, operations))


def _tensors(type_: Type | None) -> Iterator[TensorType]:
    if isinstance(type_, TensorType):
        yield type_
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _tensors(field)


def _elements(type_: TensorType) -> int:
    return math.prod(map(typical_size, type_.shape))
