"""Lowering of a schedule to a tir function: loop nests over multi-dimensional buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import tir
from weft.support.errors import InternalError, LoweringError
from weft.te.bounds import infer_bounds, symbolic_sizes
from weft.te.nest import NestBuilder
from weft.te.plan import StagePlan
from weft.te.state import INLINE, ROOT, AttachAt, ScheduleState, StageState
from weft.te.tensor import ComputeOp, ExternOp, IterVar, PlaceholderOp, ScanOp, Tensor
from weft.tir.transform.inject_double_buffer import KEY as DOUBLE_BUFFER


def lower(schedule: ScheduleState, args: Sequence[Tensor], name: str = "main",
          sizes: Sequence[tir.Var] | None = None) -> tir.PrimFunc:
    """The loops of ``schedule`` as a tir function over ``args``: inputs, then outputs.

    Every input and output of the schedule must be among ``args``. Symbolic sizes follow the
    buffers as scalar parameters: ``sizes``, or those of the shapes in order of first appearance.
    Guards that the analyzer cannot prove become ``if likely(...)``. The schedule is not changed and
    can be lowered again. Raises ``LoweringError`` for wrong arguments, ``ScheduleError`` if a stage
    is read outside the loop to which it is attached.
    """
    outputs = _check_arguments(schedule, args, name)
    given = {t: tir.Buffer(t.name, t.shape, t.dtype) for t in args}
    body = _Lowering(schedule, given).run()
    scalars = symbolic_sizes(list(args)) if sizes is None else sizes
    params = (*given.values(), *scalars)
    attrs: dict[str, Any] = {"num_outputs": outputs}
    externs = [s.op for s in schedule.stages if isinstance(s.op, ExternOp)]
    for key, records in (("python_functions", [f for op in externs for f in op.functions]),
                         ("foreign_kernels", [k for op in externs for k in op.kernels])):
        if records:
            attrs[key] = {record.symbol: record for record in records}
    return tir.PrimFunc(name, params, body, attrs)


def _check_arguments(schedule: ScheduleState, args: Sequence[Tensor], name: str) -> int:
    """The number of outputs among ``args``; raises ``LoweringError`` for wrong arguments."""
    inputs = [s.tensors[0] for s in schedule.stages if s.is_placeholder]
    for tensor in args:
        if isinstance(tensor.op, PlaceholderOp):
            continue  # an unused input is still a parameter
        schedule.stage_of(tensor)
        if tensor not in schedule.outputs:
            raise LoweringError(f"{name}: argument {tensor.name} is neither an input nor an output",
                                help="pass it to create_schedule as an output")
    if len(set(args)) != len(args):
        raise LoweringError(f"{name}: duplicate argument")
    is_output = [t in schedule.outputs for t in args]
    # The function's last ``num_outputs`` tensors are its outputs.
    if is_output != sorted(is_output):
        raise LoweringError(f"{name}: the arguments must be the inputs and then the outputs")
    for what, needed in (("output", schedule.outputs), ("input", inputs)):
        for tensor in needed:
            if tensor not in args:
                raise LoweringError(f"{name}: {what} {tensor.name} is missing from the arguments",
                                    got=[t.name for t in args])
    return sum(is_output)


class _Lowering:
    def __init__(self, schedule: ScheduleState, given: dict[Tensor, tir.Buffer]) -> None:
        self.schedule = schedule
        self.given = given
        self.analyzer = tir.Analyzer()
        self.plans = infer_bounds(schedule, self.analyzer, given)
        self.owner = {t: s for s in schedule.stages for t in s.tensors}
        # The updates of a scan read its results through the state placeholders.
        self._state_indices: dict[Tensor, int] = {}
        for stage in schedule.stages:
            if isinstance(stage.op, ScanOp):
                self.owner.update(dict.fromkeys(stage.op.states, stage))
                self._state_indices.update((t, i) for i, t in enumerate(stage.op.states))

    def run(self) -> tir.Stmt:
        stages = [s for s in self.schedule.stages if s.attach == ROOT and not s.is_placeholder]
        return self._in_order(stages, None)

    def _in_order(self, stages: list[StageState], rest: tir.Stmt | None) -> tir.Stmt:
        """The stages one after the other, then ``rest``; buffers stay allocated until its end."""
        # From the last stage backwards, because an ``Allocate`` encloses all that follows it.
        for stage in reversed(stages):
            body = tir.seq([self._nest(stage), rest])
            for buffer in self._allocated_with(stage):
                if buffer not in self.given.values():
                    body = tir.Allocate(buffer, body)
            if stage.is_double_buffered and isinstance(stage.attach, AttachAt):
                body = tir.AttrStmt(DOUBLE_BUFFER, stage.name, body)
            rest = body
        return tir.seq([rest])

    def _allocated_with(self, stage: StageState) -> tuple[tir.Buffer, ...]:
        """Buffers allocated before a stage; those of a scan are allocated before its first init."""
        starts = {t for s in self.schedule.stages if isinstance(s.op, ScanOp) for t in s.op.init}
        plan = self.plans[stage]
        is_later = isinstance(stage.op, ScanOp) or (
            plan.is_part_of_scan and stage.tensors[0] not in starts)
        return () if is_later else plan.buffers

    def _nest(self, stage: StageState) -> tir.Stmt:
        plan = self.plans[stage]
        if isinstance(stage.op, ExternOp):
            return self._extern(plan, stage.op)
        if isinstance(stage.op, ScanOp):
            return self._scan(plan, stage.op)
        if not isinstance(stage.op, ComputeOp):
            raise InternalError(f"{stage.name} is a placeholder and cannot be lowered")

        def inside(leaf: IterVar, body: tir.Stmt) -> tir.Stmt:
            return self._in_order(self._computed_at(stage, leaf), body)

        return NestBuilder(plan, self.analyzer, self._locate, inside).build()

    def _computed_at(self, stage: StageState, leaf: IterVar) -> list[StageState]:
        return [s for s in self.schedule.stages if isinstance(s.attach, AttachAt)
                and s.attach.stage is stage and s.attach.axis is leaf]

    def _locate(self, tensor: Tensor) -> tuple[tir.Buffer, tuple[tir.PrimExpr, ...]]:
        stage = self.owner[tensor]
        if stage.attach == INLINE:
            raise InternalError(f"{tensor.name} is inlined: it is not in memory")
        plan = self.plans[stage]
        # An extern body writes whole tensors, whose ranks may differ from the first output's.
        origin = () if isinstance(stage.op, ExternOp) else plan.origin
        return plan.buffers[self._state_indices.get(tensor, tensor.value_index)], (
            origin or tuple(tir.const(0) for _ in tensor.shape))

    def _scan(self, plan: StagePlan, op: ScanOp) -> tir.Stmt:
        """The time loop; the updates inside it write the buffers of the scan."""
        body = self._in_order(self._computed_at(plan.stage, op.axis), None)
        var, extent = plan.loop_vars[op.axis], plan.extents[op.axis]
        # The inits compute all entries.
        if tir.int_value(extent) == 0:
            return tir.seq([])
        if not isinstance(var, tir.Var):
            return body
        return tir.For(var, tir.const(0), extent, tir.ForKind.SERIAL, body)

    def _extern(self, plan: StagePlan, op: ExternOp) -> tir.Stmt:
        return op.build(tuple(self._locate(t)[0] for t in op.inputs), plan.buffers)
