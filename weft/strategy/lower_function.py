"""From a primitive function to a loop program: choose, build, schedule, lower."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import te
from weft.ir.expr import Function
from weft.ir.op import Op
from weft.ir.types import TensorType, TupleType, Type
from weft.strategy.build_tensors import anchor_of, build_tensors
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import default_implementation, select
from weft.strategy.work import count_flops
from weft.support.errors import LoweringError
from weft.target import Target
from weft.te.lower import lower
from weft.tir.func import PrimFunc
from weft.tir.transform.pipeline import lower_prim_func


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel as a loop program after all tir passes.

    ``flops`` counts a multiply-add as two and ``bytes_moved`` every argument once, so that
    a profile can say which limit a kernel is near.
    """

    func: PrimFunc
    implementation: str
    flops: int
    bytes_moved: int


def lower_function(
    function: Function, target: Target, name: str = "kernel", *, stage: str = "lowered"
) -> LoweredKernel:
    """Lower one primitive function with fixed sizes.

    ``stage="scheduled"`` stops at the loop nest that te makes, before the tir passes.
    Raises ``LoweringError`` for what a kernel cannot hold.
    """
    anchor = anchor_of(function)
    implementation = _choose(function, target)
    graph = build_tensors(function, anchor, implementation)
    schedule = te.create_schedule(graph.outputs)
    if anchor is not None and implementation is not None:
        implementation.schedule(
            ScheduleContext(schedule, graph.anchor, graph.outputs, anchor, target)
        )
    func = lower(schedule, [*graph.inputs, *graph.outputs], name)
    func = func.with_attrs(num_outputs=len(graph.outputs))
    if stage != "scheduled":
        func = lower_prim_func(func)
    chosen = implementation.name if implementation else "copy"
    return LoweredKernel(func, chosen, count_flops(graph.outputs), _bytes_moved(function))


def _choose(function: Function, target: Target) -> Implementation | None:
    anchor = anchor_of(function)
    if anchor is None:
        return None
    if isinstance(anchor.op, Op) and anchor.op.pattern <= 3:
        # An elementwise or injective chain has no anchor in particular, and a reduction's
        # schedule depends on the shape of its stages alone.
        return default_implementation(anchor.op, target)
    return select(anchor, target)


def _bytes_moved(function: Function) -> int:
    types = [p.checked_type or p.annotation for p in function.params]
    types.append(function.body.checked_type)
    return sum(_bytes_of(t) for t in types)


def _bytes_of(type_: Type | None) -> int:
    if isinstance(type_, TensorType):
        return math.prod(type_.concrete_shape) * type_.dtype.itemsize
    if isinstance(type_, TupleType):
        return sum(_bytes_of(field) for field in type_.fields)
    raise LoweringError("a kernel takes tensors and tuples of tensors", got=str(type_))
