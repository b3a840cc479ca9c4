"""From a primitive function to a loop program: choose, build, schedule, lower."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft import te
from weft.ir.dynamic import result_types
from weft.ir.expr import Call, Function
from weft.ir.op import Op
from weft.ir.types import TensorType, TupleType, Type
from weft.strategy.analysis import computes_below
from weft.strategy.build_tensors import anchor_of, build_tensors
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.records import ranking_of
from weft.strategy.registry import candidates, default_implementation, select, strategies_of
from weft.strategy.work import count_flops
from weft.support.errors import LoweringError, ScheduleError
from weft.support.user_code import place_in_traceback
from weft.target import Target
from weft.te.lower import lower
from weft.te.tensor import PlaceholderOp
from weft.tir.expr import Cast, ProducerLoad
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


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A kernel as tensor expressions with a schedule; ``tensors`` are its arguments in order."""

    schedule: te.Schedule
    tensors: tuple[te.Tensor, ...]
    num_outputs: int
    implementation: str

    def loop_nest(self, name: str = "kernel") -> PrimFunc:
        """The loops of the schedule, before any tir pass."""
        func = lower(self.schedule, self.tensors, name)
        return func.with_attrs(num_outputs=self.num_outputs)


def schedule_function(
    function: Function, target: Target, implementation: Implementation | None = None
) -> ScheduledKernel:
    """Choose an implementation for one primitive function with fixed sizes, and schedule it.

    ``implementation`` is the choice where it has been made already. Raises ``LoweringError`` for
    what a kernel cannot hold, ``OperatorError`` for a compute that breaks its relation.
    """
    anchor = anchor_of(function)
    implementation = implementation or _choose(function, target)
    graph = build_tensors(function, anchor, implementation)
    schedule = te.create_schedule(graph.outputs)
    if anchor is not None and implementation is not None:
        _apply(implementation,
               ScheduleContext(schedule, graph.anchor, graph.outputs, anchor, target))
    chosen = implementation.name if implementation else "copy"
    return ScheduledKernel(
        schedule, (*graph.inputs, *graph.outputs), len(graph.outputs), chosen
    )


def lower_function(
    function: Function, target: Target, name: str = "kernel",
    implementation: Implementation | None = None,
) -> LoweredKernel:
    """Lower one primitive function with fixed sizes; raises ``LoweringError`` where it cannot."""
    kernel = schedule_function(function, target, implementation)
    outputs = kernel.tensors[len(kernel.tensors) - kernel.num_outputs:]
    flops = count_flops(outputs)
    func = lower_prim_func(kernel.loop_nest(name))
    return LoweredKernel(func, kernel.implementation, flops, _bytes_moved(function))


def _apply(implementation: Implementation, ctx: ScheduleContext) -> None:
    """Schedule; an illegal step is reported at the line that asks for it."""
    _inline_widening(ctx)
    try:
        implementation.schedule(ctx)
    except ScheduleError as error:
        note = f"in the schedule of {implementation.name} for {ctx.call.op}"
        raise error.at(place_in_traceback(error.__traceback__), note) from error


def _inline_widening(ctx: ScheduleContext) -> None:
    """Arguments that are stored in few bits and computed with in more are widened as they are
    read; a schedule whose loops read them too often copies them instead.
    """
    for op in computes_below(ctx.outputs):
        tensor = op.output(0)
        readers = ctx.schedule.consumers(ctx.schedule[tensor])
        is_read_by_loops = all(isinstance(reader.op, te.ComputeOp) for reader in readers)
        if tensor not in ctx.outputs and _is_widening(op) and is_read_by_loops:
            ctx.schedule[tensor].compute_inline()


def _is_widening(op: te.ComputeOp) -> bool:
    """Whether ``op`` is an argument of the kernel in a type of more bits, and not packed so."""
    body = op.body[0]
    if not isinstance(body, Cast) or not isinstance(body.value, ProducerLoad):
        return False
    if op.role in te.PACKED_OPERANDS:
        return False
    is_argument = isinstance(body.value.producer.op, PlaceholderOp)
    return is_argument and body.value.dtype.bits < body.dtype.bits


def _choose(function: Function, target: Target) -> Implementation | None:
    anchor = anchor_of(function)
    if anchor is None:
        return None
    op = anchor.op
    if isinstance(op, Op) and op.pattern <= 3 and not strategies_of(op.name, target.kind):
        # An elementwise or injective chain has no anchor in particular, and a reduction's
        # schedule depends on the shape of its stages alone; a user may say otherwise.
        return default_implementation(op, target)
    return _recorded(function, anchor, target) or select(anchor, target)


def _recorded(function: Function, anchor: Call, target: Target) -> Implementation | None:
    """What was fastest when somebody timed this kernel, of what there still is."""
    ranking = ranking_of(function, target)
    offered = {c.name: c for c in candidates(anchor, target)} if ranking else {}
    return next((offered[name] for name in ranking if name in offered), None)


def _bytes_moved(function: Function) -> int:
    types = [p.checked_type or p.annotation for p in function.params]
    return sum(_bytes_of(t) for t in (*types, *result_types(function)))


def _bytes_of(type_: Type | None) -> int:
    if isinstance(type_, TensorType):
        return math.prod(type_.concrete_shape) * type_.dtype.itemsize
    if isinstance(type_, TupleType):
        return sum(_bytes_of(field) for field in type_.fields)
    raise LoweringError("a kernel takes tensors and tuples of tensors", got=str(type_))
