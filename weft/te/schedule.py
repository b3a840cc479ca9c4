"""Schedules: the loops, memory and threads with which the tensors of a program are computed.

``create_schedule`` gives every operation a stage with one loop per axis. The methods of a stage
transform those loops (``weft.te.primitives``); none changes a computed value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from weft.support.errors import ScheduleError
from weft.support.markup import shown_as_text
from weft.te.plan import attach_to_scans
from weft.te.primitives.attach import compute_at, compute_inline, compute_root
from weft.te.primitives.cache import cache_read, cache_write
from weft.te.primitives.implement import implement
from weft.te.primitives.loop_kinds import bind, parallel, pragma, unroll, vectorize
from weft.te.primitives.loops import fuse, reorder, split, tile
from weft.te.primitives.prefetch import prefetch, prefetch_next_block
from weft.te.primitives.rfactor import rfactor
from weft.te.primitives.storage import double_buffer, set_scope, storage_align, store_in
from weft.te.primitives.tensorize import tensorize
from weft.te.state import AttachAt, Prefetch, ScheduleState, StageState
from weft.te.tensor import REDUCE, IterVar, Operation, PlaceholderOp, ScanOp, Tensor
from weft.te.trace import ScheduleTrace, traced
from weft.te.walk import input_tensors
from weft.tir import ForKind, int_value


def as_text(schedule: ScheduleState) -> str:
    """One line per stage, followed by one line per loop of it."""
    return "\n".join(_stage(s) for s in schedule.stages if not s.is_placeholder)


def _stage(stage: StageState) -> str:
    shape = ", ".join(str(d) for d in stage.tensors[0].shape)
    notes = [_attach_point(stage)] + ([] if stage.scope == "global" else [stage.scope])
    notes += [f"{axis.name} apart by {factor} * n + {offset}"
              for axis, (factor, offset) in stage.alignments.items()]
    notes += ["double buffer"] * stage.is_double_buffered
    notes += [] if stage.stored_in is None else [f"in {stage.stored_in.name}"]
    lines = [f"{stage.name}({shape}): {', '.join(notes)}"]
    if stage.attach != "inline":
        lines += [f"  {_loop(stage, axis)}" for axis in stage.leaf_iter_vars]
    return "\n".join(lines)


def _attach_point(stage: StageState) -> str:
    at = stage.attach
    return f"at {at.stage.name}.{at.axis.name}" if isinstance(at, AttachAt) else at


def _loop(stage: StageState, axis: IterVar) -> str:
    size = int_value(axis.extent)
    text = f"{axis.name} in {axis.extent if size is None else size}"
    kind = stage.kinds.get(axis, ForKind.SERIAL)
    words = ["reduce"] if axis.kind == REDUCE else []
    words += [] if kind is ForKind.SERIAL else [stage.thread_tags.get(axis, kind.value)]
    if stage.tensorized is not None and stage.tensorized[0] is axis:
        words.append(stage.tensorized[1].name)
    words += [_prefetch(p) for p in stage.prefetches if p.axis is axis]
    words += [f"{key}={value}" for key, value in stage.pragmas.get(axis, {}).items()]
    return f"{text}: {', '.join(words)}" if words else text


def _prefetch(ahead: Prefetch) -> str:
    where = f"{ahead.offset} ahead" if ahead.readers is None else "block ahead"
    return f"prefetch {ahead.tensor.name} {where}"


class Stage(StageState):
    """One operation in a schedule, with the primitives that transform its loops."""

    split = traced(split)
    tile = traced(tile)
    fuse = traced(fuse)
    reorder = traced(reorder)
    parallel = traced(parallel)
    vectorize = traced(vectorize)
    unroll = traced(unroll)
    tensorize = traced(tensorize)
    bind = traced(bind)
    pragma = traced(pragma)
    compute_at = traced(compute_at)
    compute_inline = traced(compute_inline)
    compute_root = traced(compute_root)
    set_scope = traced(set_scope)
    storage_align = traced(storage_align)
    store_in = traced(store_in)
    double_buffer = traced(double_buffer)
    prefetch = traced(prefetch)
    prefetch_next_block = traced(prefetch_next_block)

    def __repr__(self) -> str:
        return f"Stage({self.name})"


class Schedule(ScheduleState):
    """The stages of a program; ``schedule[tensor]`` is the one that computes ``tensor``."""

    cache_write = traced(cache_write)
    cache_read = traced(cache_read)
    rfactor = traced(rfactor)
    implement = implement  # its loops are a function: the trace cannot print them

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self.outputs = tuple(outputs)
        ops = _topological(self.outputs)
        # State placeholders are stored in the buffers of their scan; they are not inputs.
        states = {t.op for op in ops if isinstance(op, ScanOp) for t in op.states}
        ops = [op for op in ops if op not in states]
        self.stages = [self.make_stage(op, op.outputs) for op in ops]
        for t in self.outputs:
            self.stage_of(t).is_output = True
        attach_to_scans(self)
        self.tensors = tuple(stage.tensors[0] for stage in self.stages)
        self.trace = ScheduleTrace(self)
        for tensor in self.tensors:
            self.trace.name(tensor)

    def make_stage(self, op: Operation, tensors: tuple[Tensor, ...]) -> Stage:
        return Stage(self, op, tensors)

    def __getitem__(self, tensor: Tensor | Operation) -> Stage:
        return cast("Stage", self.stage_of(tensor))

    def __str__(self) -> str:
        return as_text(self)

    _repr_html_ = shown_as_text

    def as_python(self) -> str:
        """Python source of a function ``schedule(outputs)`` that applies the same primitives.

        The text needs ``from weft import te`` and the registered instructions that it names.
        """
        return self.trace.as_python(self.tensors)


def create_schedule(outputs: Tensor | Operation | Sequence[Tensor | Operation]) -> Schedule:
    """The default schedule of ``outputs`` and all their producers: serial loops in axis order.

    Raises ``ScheduleError`` for an empty list or an output that is a placeholder.
    """
    given = outputs if isinstance(outputs, Sequence) else [outputs]
    tensors: list[Tensor] = []
    for item in given:
        tensors.extend(item.outputs if isinstance(item, Operation) else [item])
    if not tensors:
        raise ScheduleError("a schedule needs at least one output")
    for tensor in tensors:
        if isinstance(tensor.op, PlaceholderOp):
            raise ScheduleError(f"output {tensor.name} is an input: there is nothing to compute")
    return Schedule(tensors)


def _topological(outputs: Sequence[Tensor]) -> list[Operation]:
    """Producers before consumers, in order of first use; iterative, because chains may be long."""
    order: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(outputs)]
    while stack:
        op, ready = stack.pop()
        if ready:
            order[op] = None
        elif op not in order:
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(input_tensors(op)) if t.op not in order)
    return list(order)
