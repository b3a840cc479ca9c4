"""What lowering decides about each stage: its definition, region, loops and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.support.errors import ScheduleError
from weft.te.domain import Exprs
from weft.te.state import INLINE, ROOT, AttachAt, Prefetch, ScheduleState, StageState
from weft.te.tensor import ComputeOp, IterVar, ScanOp, Tensor
from weft.te.walk import input_tensors, rewrite_body
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, ProducerLoad, Var, const
from weft.tir.stmt import ForKind


@dataclass(frozen=True, slots=True, eq=False)
class PrefetchPlan:
    """The box from ``low``, ``shape`` elements, that an iteration of loop ``ahead.axis`` reads."""

    ahead: Prefetch
    low: tuple[PrimExpr, ...]
    shape: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StagePlan:
    """One stage ready to become loops.

    The stage computes the elements from ``low``, ``shape`` of them, into ``buffers``, whose
    element 0 is the one at ``low`` (of a start or update of a scan: the scan's first). ``values``
    are relative to ``low`` and to the minima of reduction axes; ``loop_vars`` holds the constant
    0 for a loop that runs once.
    """

    stage: StageState
    body: tuple[PrimExpr, ...]
    low: tuple[PrimExpr, ...]
    shape: tuple[PrimExpr, ...]
    buffers: tuple[Buffer, ...]
    extents: Exprs
    loop_vars: Exprs
    values: Exprs
    prefetches: tuple[PrefetchPlan, ...] = ()
    is_part_of_scan: bool = False

    @property
    def origin(self) -> tuple[PrimExpr, ...]:
        """The index of the first element of the buffers."""
        is_elsewhere = self.is_part_of_scan or self.stage.stored_in is not None
        return tuple(const(0) for _ in self.low) if is_elsewhere else self.low

    def absolute(self, axis: IterVar, place: int) -> PrimExpr:
        """The value of root axis ``axis``, number ``place`` of all of them."""
        low = self.low[place] if place < len(self.low) else axis.min
        return low + self.values[axis]

    def vars_down_to(self, axis: IterVar) -> Iterator[Var]:
        """The loop variables from the outermost loop to that of ``axis``."""
        for leaf in self.stage.leaf_iter_vars:
            var = self.loop_vars[leaf]
            if isinstance(var, Var):
                yield var
            if leaf is axis:
                return


def inlined_bodies(schedule: ScheduleState) -> dict[StageState, tuple[PrimExpr, ...]]:
    """The body of each compute stage that is not inlined, with the inlined ones put into it."""
    by_tensor = {t: s for s in schedule.stages for t in s.tensors}
    bodies: dict[StageState, tuple[PrimExpr, ...]] = {}

    def on_load(e: ProducerLoad) -> PrimExpr:
        stage = by_tensor.get(e.producer)
        if stage is None or stage.attach != INLINE or not isinstance(stage.op, ComputeOp):
            return e
        values = {a.var: i for a, i in zip(stage.op.axis, e.indices, strict=True)}
        return rewrite_body((bodies[stage][e.producer.value_index],), values)[0]

    for stage in schedule.stages:
        if isinstance(stage.op, ComputeOp):
            bodies[stage] = rewrite_body(stage.op.body, {}, on_load)
    return {s: body for s, body in bodies.items() if s.attach != INLINE}


def tensors_of(stage: StageState) -> dict[Tensor, int]:
    return {t: i for i, t in enumerate(stage.tensors)}


def attach_to_scans(schedule: ScheduleState) -> None:
    """Put what depends on the state of a scan into its loop, where it is at the root.

    Raises ``ScheduleError`` for a stage that reads the state and is no part of an update.
    """
    for scan in schedule.stages:
        if not isinstance(scan.op, ScanOp):
            continue
        updates = [schedule.stage_of(t) for t in scan.op.update]
        for stage in _reading(schedule, scan.op.states) | dict.fromkeys(updates):
            if stage not in updates and not any(schedule.reads_through(stage, u)
                                                for u in updates):
                raise stage.error(f"it reads the state of {scan.name} and is no part of an update",
                                  help=f"read {scan.name} itself")
            if stage.attach == ROOT:
                stage.attach = AttachAt(scan, scan.op.axis)


def _reading(
    schedule: ScheduleState, states: tuple[Tensor, ...]
) -> dict[StageState, None]:
    """The stages that read ``states``, directly or through others, in order."""
    found: dict[StageState, None] = {}
    for stage in schedule.stages:
        if not isinstance(stage.op, ScanOp) and any(
            t in states or schedule.stage_of(t) in found for t in input_tensors(stage.op)
        ):
            found[stage] = None
    return found


def check_attachments(schedule: ScheduleState) -> None:
    """Refuse stages computed inside vectorized loops, or at loops that are gone."""
    for stage in schedule.stages:
        at = stage.attach
        if not isinstance(at, AttachAt):
            continue
        if at.stage.attach == INLINE:
            raise stage.error(f"it is computed at {at.stage.name}, which is inlined")
        place = at.stage.leaf_index(at.axis)
        for leaf in at.stage.leaf_iter_vars[: place + 1]:
            if at.stage.kinds.get(leaf) is ForKind.VECTORIZED:
                raise stage.error(
                    f"it is computed inside the vectorized axis {leaf.name} of {at.stage.name}",
                    help="compute it at a loop outside, or reorder the vectorized axis inwards",
                )


def check_inside(reader: StageState, stage: StageState, at: AttachAt) -> None:
    """Refuse a reader of ``stage`` that is not inside the loop at which ``stage`` is computed."""
    place = at.stage.leaf_index(at.axis)
    where, inside = reader, True
    while where is not at.stage and inside:
        outer = where.attach
        inside = isinstance(outer, AttachAt) and (
            outer.stage is not at.stage or outer.stage.leaf_index(outer.axis) >= place
        )
        if isinstance(outer, AttachAt):
            where = outer.stage
    if not inside:
        raise ScheduleError(
            f"{stage.name} is computed at loop {at.axis.name} of {at.stage.name}, but "
            f"{reader.name}, which reads it, is outside that loop",
            help=f"compute {reader.name} at that loop too, or {stage.name} at the root",
        )
