"""Bound inference: the region of elements that each stage computes, and so its loop extents.

Stages are visited from consumers to producers. A stage at the root computes its whole tensor. A
stage attached to a loop of its consumer computes the bounding box of the reads in one iteration:
the enclosing loop variables are fixed, all inner ones vary (``weft.te.span``). A box may exceed
the end of a tensor, as a tile does; the loop nest guards those elements, so that tiles keep
constant shapes.

The allocated shape of a stage includes the padding that ``storage_align`` asks for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from weft.te.aliasing import check_aliasing
from weft.te.domain import axis_values, loop_extents, overruns
from weft.te.plan import (
    PrefetchPlan,
    StagePlan,
    attach_to_scans,
    check_attachments,
    check_inside,
    inlined_bodies,
    tensors_of,
)
from weft.te.span import MaybeSpan, Span, SpanOf, counted
from weft.te.state import INLINE, AttachAt, Fuse, Prefetch, ScheduleState, Split, StageState
from weft.te.tensor import ComputeOp, ExternOp, IterVar, ScanOp, Tensor
from weft.te.walk import input_tensors, loads_of
from weft.tir import Analyzer, Buffer, ForKind, post_order, substitute
from weft.tir.expr import LT, PrimExpr, ProducerLoad, Var, const, int_value, maximum, minimum
from weft.tir.size_text import bind_size


def padded_shape(stage: StageState, shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """``shape`` with padding after each aligned axis, so that its stride is as requested.

    Raises ``ScheduleError`` if an inner size is symbolic or no padding gives the stride.
    """
    if not stage.alignments:
        return shape
    sizes = list(shape)
    stride: int | None = 1  # in elements, of one index along the current axis
    for position in reversed(range(1, len(sizes))):
        wanted = stage.alignments.get(stage.axis[position - 1])
        size = int_value(sizes[position])
        if wanted is not None:
            if size is None or stride is None:
                raise stage.error(f"storage_align of {stage.axis[position - 1].name}: the inner "
                                  f"sizes {shape[position:]} are not constant")
            size = _padded(stage, size, stride, *wanted)
            sizes[position] = const(size)
        stride = None if size is None or stride is None else stride * size
    return tuple(sizes)


def _padded(stage: StageState, size: int, stride: int, factor: int, offset: int) -> int:
    """The smallest size whose stride is ``n * factor + offset`` elements."""
    # The remainders repeat after at most ``factor`` sizes.
    for padded in range(size, size + factor):
        if padded * stride % factor == offset:
            return padded
    raise stage.error(f"storage_align: no multiple of {stride} elements is {factor} * n + {offset}",
                      help="align the inner axes differently")


ZERO = const(0)


def infer_bounds(
    schedule: ScheduleState, analyzer: Analyzer, given: dict[Tensor, Buffer]
) -> dict[StageState, StagePlan]:
    """A plan for each stage that is not inlined; ``given`` maps arguments to their buffers.

    Binds the ranges of loop variables in ``analyzer``. Raises ``ScheduleError`` if a stage is read
    outside the loop to which it is attached.
    """
    attach_to_scans(schedule)
    check_attachments(schedule)
    for var in symbolic_sizes([t for s in schedule.stages for t in s.tensors]):
        bind_size(analyzer, var)
    return _Inference(schedule, analyzer, given).run()


def symbolic_sizes(tensors: list[Tensor]) -> list[Var]:
    """The variables in the shapes, in order of first appearance."""
    found: dict[Var, None] = {}
    for tensor in tensors:
        for size in tensor.shape:
            if int_value(size) is None:
                for e in post_order(size):
                    if isinstance(e, Var):
                        found[e] = None
    return list(found)


class _Inference:
    def __init__(
        self, schedule: ScheduleState, analyzer: Analyzer, given: dict[Tensor, Buffer]
    ) -> None:
        self.schedule = schedule
        self.analyzer = analyzer
        self.given = given
        self.bodies = inlined_bodies(schedule)
        self.plans: dict[StageState, StagePlan] = {}
        self.loops: dict[Var, Span] = {}
        self.scans = {t: s.op for s in schedule.stages if isinstance(s.op, ScanOp)
                      for t in (*s.op.init, *s.op.update)}
        self.readers = self._readers()

    def run(self) -> dict[StageState, StagePlan]:
        """Plans from consumers to producers; prefetch boxes need the plan of their stage."""
        for stage in reversed(self.schedule.stages):
            if stage.attach != INLINE:
                plan = self.plans[stage] = self._plan(stage)
                ahead = tuple(self._prefetch(stage, p) for p in stage.prefetches)
                self.plans[stage] = dataclasses.replace(plan, prefetches=ahead)
        return self.plans

    def _prefetch(self, stage: StageState, ahead: Prefetch) -> PrefetchPlan:
        """The box that one iteration of the loop, or one run of it, reads of the tensor."""
        stage.require_ahead(ahead)
        loads = [e for e in loads_of(self.bodies[stage]) if e.producer is ahead.tensor]
        if not loads:
            # A later cache_read may have redirected the reads to its copy.
            raise stage.error(f"prefetch of {ahead.tensor.name}, which it does not read any more")
        at = AttachAt(stage, ahead.axis)
        enclosing = self._enclosing_vars(at)
        if ahead.readers is not None:
            inside = stage.leaf_iter_vars[stage.leaf_index(ahead.readers.within):]
            enclosing -= {self.plans[stage].loop_vars[axis] for axis in inside}
        of_loops = SpanOf(self.analyzer, {v: s for v, s in self.loops.items()
                                          if v not in enclosing})
        of_axes = SpanOf(self.analyzer, self._axis_spans(stage, at, of_loops, enclosing))
        spans = self._joined(of_loops, [[of_axes(i) for i in e.indices] for e in loads])
        box = [self._clip(s, n) for s, n in zip(spans, ahead.tensor.shape, strict=True)]
        return PrefetchPlan(ahead, tuple(b[0] for b in box), tuple(b[1] for b in box))

    def _joined(self, of_loops: SpanOf, boxes: list[list[MaybeSpan]]) -> list[MaybeSpan]:
        """The bounding box of several boxes."""
        spans = boxes[0]
        for box in boxes[1:]:
            spans = [of_loops.hull(a, b) for a, b in zip(spans, box, strict=True)]
        return spans

    def _readers(self) -> dict[Tensor, dict[StageState, list[ProducerLoad]]]:
        """The loads of each tensor by stage; no loads for extern bodies, which read all of it."""
        found: dict[Tensor, dict[StageState, list[ProducerLoad]]] = {}
        for stage in self.schedule.stages:
            if isinstance(stage.op, ExternOp | ScanOp):
                for tensor in input_tensors(stage.op):
                    found.setdefault(tensor, {})[stage] = []
            for load in loads_of(self.bodies.get(stage, ())):
                found.setdefault(load.producer, {}).setdefault(stage, []).append(load)
        return found

    def _plan(self, stage: StageState) -> StagePlan:
        box = [(ZERO, size) for size in stage.tensors[0].shape]
        scan = self.scans.get(stage.tensors[0])
        if scan is not None and stage.tensors[0] in scan.update:
            # The update of a scan runs inside the time loop, one entry in each iteration.
            box[0] = (self.plans[self.schedule.stage_of(scan)].absolute(scan.axis, 0), const(1))
        elif isinstance(stage.attach, AttachAt) and isinstance(stage.op, ComputeOp):
            box = self._region(stage, stage.attach)
        elif stage.stored_in is not None:
            raise stage.error(f"it is stored in {stage.stored_in.name}, but not computed at one "
                              "of its loops")
        low, shape = tuple(b[0] for b in box), tuple(b[1] for b in box)
        if isinstance(stage.op, ScanOp):
            low = shape = ()
        roots: dict[IterVar, PrimExpr] = {a: a.extent for a in stage.root_iter_vars}
        if isinstance(stage.op, ComputeOp):
            roots.update(zip(stage.op.axis, shape, strict=True))
        extents = loop_extents(stage, roots)
        # The loops come first: ``_loop_var`` simplifies the extents from which values are computed.
        loop_vars = {
            a: self._loop_var(a, extents, is_grid_loop=stage.thread_tags.get(a, "").startswith(
                "blockIdx"))
            for a in stage.leaf_iter_vars}
        values = axis_values(stage.relations, loop_vars, extents)
        self._bind_fused(stage, extents, values)
        buffers = tuple(self._buffer(stage, t, shape) for t in stage.tensors)
        body = self.bodies.get(stage, ())
        return StagePlan(stage, body, low, shape, buffers, extents, loop_vars, values,
                         is_part_of_scan=scan is not None)

    def _bind_fused(
        self, stage: StageState, extents: dict[IterVar, PrimExpr], values: dict[IterVar, PrimExpr]
    ) -> None:
        """Tell the analyzer that the axes of a fused loop stay below their symbolic extents.

        The analyzer cannot derive ``f // 4 // s < n`` from ``f < n * s * 4``: that takes two
        roundings down. A fused loop that overruns its extent has no such bound: its guard does.
        """
        fusions = [r for r in reversed(stage.relations) if isinstance(r, Fuse)]
        over = set(overruns(stage, extents))
        for r in fusions:
            if r.fused in over:
                over |= {r.outer, r.inner}
        for axis in (a for r in fusions for a in (r.outer, r.inner) if a not in over):
            value, extent = values[axis], extents[axis]
            loops = [e for e in post_order(value) if isinstance(e, Var) and e in self.loops]
            if int_value(extent) is None and len(loops) == 1 and value is not loops[0]:
                self.analyzer.bind_fact(loops[0], LT(value, extent))

    def _loop_var(self, leaf: IterVar, extents: dict[IterVar, PrimExpr], *,
                  is_grid_loop: bool) -> PrimExpr:
        extent = extents[leaf] = self.analyzer.simplify(extents[leaf])
        # Without a variable, the index folds to a constant, and the nest emits no loop. A loop over
        # blocks keeps its variable: the stages attached to it run in one block.
        if int_value(extent) == 1 and not is_grid_loop:
            return ZERO
        var = Var(leaf.name)
        self.analyzer.bind(var, 0, extent)
        self.loops[var] = counted(extent)
        return var

    def _buffer(self, stage: StageState, tensor: Tensor, shape: tuple[PrimExpr, ...]) -> Buffer:
        scan = self.scans.get(tensor)
        if scan is not None:
            index = scan.output_index_of(tensor) or 0
            return self.plans[self.schedule.stage_of(scan)].buffers[index]
        given = self.given.get(tensor if stage.stored_in is None else stage.stored_in.tensors[0])
        size = padded_shape(stage, shape) if isinstance(stage.op, ComputeOp) else tensor.shape
        return given or Buffer(tensor.name, size, tensor.dtype, stage.scope)

    def _region(self, stage: StageState, at: AttachAt) -> list[tuple[PrimExpr, PrimExpr]]:
        """Lowest index and extent per dimension of what one iteration of the attach loop reads."""
        enclosing = self._enclosing_vars(at)
        if stage.scope == "shared":
            # The threads of a block compute a shared stage together, for the reads of all of them.
            enclosing -= self._thread_vars(at)
        inner = {v: s for v, s in self.loops.items() if v not in enclosing}
        of_loops = SpanOf(self.analyzer, inner)
        boxes: list[list[MaybeSpan]] = []
        for tensor in tensors_of(stage):
            for reader, loads in self.readers.get(tensor, {}).items():
                check_inside(reader, stage, at)
                if not loads:
                    # An extern body may read every element; ``None`` stands for the whole tensor.
                    boxes.append([None] * tensor.ndim)
                    continue
                of_axes = SpanOf(self.analyzer, self._axis_spans(reader, at, of_loops, enclosing))
                over_loops = self._index_over_loops(reader)
                boxes.extend(
                    [_narrower(of_axes(i), of_loops(over_loops(i)) if over_loops else None)
                     for i in load.indices]
                    for load in loads
                )
        if not boxes:  # simplification took the reads away, such as those that are multiplied by 0
            boxes.append([of_loops(ZERO)] * stage.tensors[0].ndim)
        spans = self._joined(of_loops, boxes)
        sizes = stage.tensors[0].shape
        box = [self._clip(s, n) for s, n in zip(spans, sizes, strict=True)]
        if stage.stored_in is not None:
            check_aliasing(stage, self.plans[stage.stored_in],
                           self.readers.get(stage.tensors[0], {}), enclosing, box)
        return [self._whole(*b, n, step)
                for b, n, step in zip(box, sizes, instruction_steps(stage), strict=True)]

    def _whole(
        self, low: PrimExpr, extent: PrimExpr, size: PrimExpr, step: int
    ) -> tuple[PrimExpr, PrimExpr]:
        """The range extended to a multiple of ``step``, if the tensor is large enough."""
        length = int_value(extent)
        if step > 1 and length is not None:
            longer = const(-(-length // step) * step)
            if self.analyzer.can_prove(low + longer <= size):
                return low, longer
        return low, extent

    def _enclosing_vars(self, at: AttachAt) -> set[Var]:
        """The variables of all loops around the attach point ``at``."""
        return {v for point in _points(at)
                for v in self.plans[point.stage].vars_down_to(point.axis)}

    def _thread_vars(self, at: AttachAt) -> set[Var]:
        """The variables of the loops around ``at`` that are bound to the threads of a block."""
        found: set[Var] = set()
        for point in _points(at):
            values = self.plans[point.stage].loop_vars
            bound = (values[axis] for axis, tag in point.stage.thread_tags.items()
                     if tag.startswith("threadIdx"))
            found.update(v for v in bound if isinstance(v, Var))
        return found

    def _axis_spans(
        self, reader: StageState, at: AttachAt, of_loops: SpanOf, enclosing: set[Var]
    ) -> dict[Var, MaybeSpan]:
        """The span of each root axis of ``reader`` during one iteration of the loop ``at``."""
        plan = self.plans[reader]
        spans: dict[Var, MaybeSpan] = {}
        for dimension, axis in enumerate(reader.root_iter_vars):
            value = plan.values[axis]
            whole = counted(plan.extents[axis])
            # Only the attach stage has loops on both sides of the attach point. Every other reader
            # is attached inside that loop, so one iteration runs all of its loops.
            if reader is at.stage and any(e in enclosing for e in post_order(value)):
                spans[axis.var] = _within(of_loops(value), whole)
            else:
                spans[axis.var] = whole
            low = of_loops(plan.low[dimension] if dimension < len(plan.low) else axis.min)
            spans[axis.var] = _shifted(spans[axis.var], low)
        return spans

    def _index_over_loops(self, reader: StageState) -> Callable[[PrimExpr], PrimExpr] | None:
        """Maps an index over axes to one over loops of ``reader``; ``None`` without fused loops.

        Each axis alone is a quotient or a remainder of the fused loop, so four iterations may
        touch two rows. An index that combines the axes again, ``row * 14 + column``, simplifies
        to a linear expression of the loop variable with exactly four values.
        """
        if not any(isinstance(r, Fuse) for r in reader.relations):
            return None
        plan = self.plans[reader]
        values = {a.var: plan.absolute(a, i) for i, a in enumerate(reader.root_iter_vars)}
        return lambda index: self.analyzer.simplify(substitute(index, values))

    def _clip(self, span: MaybeSpan, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The span as lowest index and extent, clipped to ``[0, size)`` if its base is constant."""
        if span is None:
            return ZERO, size
        if int_value(span.base) == 0:
            low = maximum(span.low, ZERO)
            # A region of constant base may be clipped: its extent stays the same in all iterations.
            high = minimum(span.high, size - 1)
            # ``minimum`` folds constants only; for a symbolic size, the comparison is proved.
            if self.analyzer.can_prove(span.high >= size - 1):
                high = size - 1
            extent = self.analyzer.simplify(high - low + 1)
            if int_value(extent) is None and extent is self.analyzer.simplify(size):
                return low, size  # a symbolic axis as a whole, which may be empty
            # An empty intersection would give an extent below 1.
            return low, maximum(extent, const(1))
        extent = self.analyzer.simplify(span.width)
        if self.analyzer.can_prove(extent >= size):
            return ZERO, size
        return self.analyzer.simplify(span.lowest), extent


def _points(at: AttachAt) -> Iterator[AttachAt]:
    """The attach point ``at`` and those of the stages around it."""
    point: AttachAt | None = at
    while point is not None:
        yield point
        outer = point.stage.attach
        point = outer if isinstance(outer, AttachAt) else None


def _narrower(span: MaybeSpan, other: MaybeSpan) -> MaybeSpan:
    """The narrower of two spans of the same values; the first if the widths are not comparable."""
    if span is None or other is None:
        return span or other
    width, other_width = int_value(span.width), int_value(other.width)
    if other_width is None or (width is not None and width <= other_width):
        return span
    return other


def instruction_steps(stage: StageState) -> list[int]:
    """For each data axis of ``stage``, the number of elements that one instruction computes.

    A vector of a register tile counts as an instruction: a partial vector is not faster.
    """
    axes = stage.axis if isinstance(stage.op, ComputeOp) else ()
    steps = dict.fromkeys(axes, 1)
    inside: list[IterVar] = []
    if stage.tensorized is not None:
        inside = stage.leaf_iter_vars[stage.leaf_index(stage.tensorized[0]):]
    elif stage.scope == "local":
        inside = [axis for axis, kind in stage.kinds.items() if kind is ForKind.VECTORIZED]
    for r in stage.relations:
        if isinstance(r, Split) and r.inner in inside and r.parent in steps and r.factor:
            steps[r.parent] = r.factor
    return list(steps.values())


def _within(span: MaybeSpan, whole: Span) -> MaybeSpan:
    if span is None:
        return whole
    # Clipping here would make the extent depend on the enclosing loops; tiles keep one shape.
    if int_value(span.base) != 0:
        return span
    return Span(ZERO, span.low, minimum(span.high, whole.high))


def _shifted(span: MaybeSpan, by: MaybeSpan) -> MaybeSpan:
    if span is None or by is None:
        return None
    return Span(span.base + by.base, span.low + by.low, span.high + by.high)
