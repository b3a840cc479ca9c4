"""From a primitive function to a loop program: decide, build tensors, schedule, lower."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.codegen import backend_of
from weft.ir.expr import Call, Function
from weft.runtime.sizes import Size
from weft.strategy.analysis import computes_below
from weft.strategy.build_tensors import TensorGraph, anchor_of, build_tensors
from weft.strategy.explain import explain_kernel
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.parallel_work import parallel_from
from weft.strategy.records import ranking_of
from weft.strategy.selection import select
from weft.strategy.size_vars import SizeVars
from weft.strategy.work import count_bytes, count_flops
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import ScheduleError
from weft.support.stage_times import stage
from weft.support.user_code import location_in_traceback
from weft.target import Target
from weft.te import PlaceholderOp, lower
from weft.tir import Cast, PrimFunc, ProducerLoad
from weft.tir.transform.registered import TirInsertion


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel as a loop program after all tir passes.

    ``flops`` counts a multiply-add as two, ``bytes_moved`` what has to be read and written
    (``strategy/work.py``): a profile divides both by the time and compares them with the machine's
    peaks. ``sizes`` are the values of the scalar parameters, as texts over the symbols of the
    program. ``seconds`` are predicted from the loops (``CostModel.predict``), and ``spent`` says on
    what; where that is impossible they are the estimate by which the implementation was chosen, at
    typical sizes, or 0.
    """

    func: PrimFunc
    implementation: str
    flops: Size
    bytes_moved: Size
    sizes: tuple[Size, ...] = ()
    seconds: float = 0.0
    spent: str = ""


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A kernel as tensor expressions with a schedule; ``tensors`` are its arguments in order.

    The variables of ``sizes`` follow them as scalar parameters.
    """

    schedule: te.Schedule
    tensors: tuple[te.Tensor, ...]
    num_outputs: int
    implementation: str
    sizes: SizeVars
    seconds: float = 0.0

    @stage("loops of a schedule")
    def loop_nest(self, name: str = "kernel") -> PrimFunc:
        """The loops of the schedule, before any tir pass."""
        func = lower(self.schedule, self.tensors, name, self.sizes.params)
        return func.with_attrs(num_outputs=self.num_outputs)


@stage("tensor expressions and schedules")
def schedule_function(
    function: Function, target: Target, implementation: Implementation | None = None
) -> ScheduledKernel:
    """Decide how one primitive function runs, build its tensors, schedule them.

    ``implementation`` overrides the decision. Raises ``LoweringError`` for an expression that a
    kernel cannot contain, ``OperatorError`` for a compute that contradicts its relation.
    """
    anchor = anchor_of(function)
    if anchor is None:  # parameters alone: each output is a copy
        return _scheduled(build_tensors(function, None, None), "copy")
    implementation = implementation or decide(function, anchor, target)
    graph = build_tensors(function, anchor, implementation)
    kernel = _scheduled(graph, implementation.name, implementation.seconds or 0.0)
    context = ScheduleContext(kernel.schedule, graph.anchor, graph.outputs, anchor, target)
    _apply_schedule(implementation, context)
    return kernel


def decide(function: Function, anchor: Call, target: Target) -> Implementation:
    """The implementation of the anchor, by measured records of this kernel or by estimates."""
    selection = select(anchor, target, ranking_of(function, target))
    if config.explain:
        explain_kernel(function, anchor, selection)
    return selection.chosen


def _scheduled(graph: TensorGraph, implementation: str, seconds: float = 0.0) -> ScheduledKernel:
    """The kernel with the schedule that every kernel starts from: one loop nest per stage."""
    schedule = te.create_schedule(graph.outputs)
    tensors = (*graph.inputs, *graph.outputs)
    return ScheduledKernel(schedule, tensors, len(graph.outputs), implementation, graph.sizes,
                           seconds)


def _apply_schedule(implementation: Implementation, context: ScheduleContext) -> None:
    """Run the schedule of an implementation; an illegal primitive is reported at its call."""
    inline_upcasts(context)
    try:
        implementation.schedule(context)
    except ScheduleError as error:
        note = f"in the schedule of {implementation.name} for {context.call.op}"
        raise error.at(location_in_traceback(error.__traceback__), note) from error


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


def lower_function(
    function: Function, target: Target, name: str = "kernel",
    implementation: Implementation | None = None, tir_passes: Sequence[TirInsertion] = (),
) -> LoweredKernel:
    """Lower one primitive function to a loop program after all tir passes.

    ``tir_passes`` are those of the user. Raises what ``schedule_function`` raises.
    """
    kernel = schedule_function(function, target, implementation)
    outputs = kernel.tensors[len(kernel.tensors) - kernel.num_outputs:]
    flops = count_flops(outputs)
    backend = backend_of(target)
    func = backend.lower(kernel.loop_nest(name), insertions=tir_passes)
    costs = backend.cost_model(target)
    predicted = costs.predict(func)
    threshold = costs.parallel_from
    if threshold is not None:
        func = parallel_from(func, kernel.schedule, threshold)
    moved = count_bytes(kernel.tensors[:len(kernel.tensors) - kernel.num_outputs], outputs)
    return LoweredKernel(func, kernel.implementation, flops, moved, kernel.sizes.values,
                         kernel.seconds if predicted is None else predicted.seconds,
                         "" if predicted is None else predicted.text(flops))
