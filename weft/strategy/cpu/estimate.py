"""Estimates of one call from the types of its arguments and result alone, without its schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.symbol import typical_size
from weft.ir.types import TensorType, TupleType, Type
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget


def roofline_seconds(call: Call, target: CpuTarget) -> float:
    """Seconds to move all operands and results once, with one operation per element of the largest.

    An expensive operator (``OpTraits.is_expensive``) takes as long per vector as an exponential.
    Symbolic dimensions count as their typical size. The estimate is a lower bound.
    """
    tensors = [t for x in (call, *call.args) for t in _tensors(x.checked_type)]
    moved = sum(_elements(t) * t.dtype.itemsize for t in tensors)
    operations = max(map(_elements, tensors), default=0)
    itemsize = max((t.dtype.itemsize for t in tensors), default=1)
    model = machine_model(target)
    cycles = model.roofline_cycles(operations, itemsize, moved)
    if isinstance(call.op, Op) and call.op.traits.is_expensive:
        vectors = operations * itemsize / model.vector_bytes
        cycles = max(cycles, vectors * model.exp_vector_cycles)
    return model.seconds(cycles)


def gemm_seconds(call: Call, target: CpuTarget) -> float:
    """Seconds of a matmul, batched or not, by the default schedule, which blocks nothing."""
    sizes = [_elements(t) for x in (call, *call.args[:2]) for t in _tensors(x.checked_type)]
    # (M * N) * (M * K) * (K * N) is the square of M * N * K; zeros in panels add a little.
    multiply_adds = math.isqrt(math.prod(sizes))
    model = machine_model(target)
    arithmetic = model.seconds(multiply_adds * model.unblocked_fma_cycles)
    return arithmetic + roofline_seconds(call, target)


def _tensors(type_: Type | None) -> Iterator[TensorType]:
    if isinstance(type_, TensorType):
        yield type_
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _tensors(field)


def _elements(type_: TensorType) -> int:
    return math.prod(map(typical_size, type_.shape))
