"""The lowering plan of a stage: its inlined body, region, loops and buffers."""

from __future__ import annotations

from collections.abc import Iterator

from weft.support.dataclass import dataclass
from weft.support.errors import ScheduleError
from weft.te.domain import Exprs
from weft.te.state import INLINE, ROOT, AttachAt, Prefetch, ScheduleState, StageState
from weft.te.tensor import ComputeOp, IterVar, ScanOp, Tensor
from weft.te.walk import input_tensors, rewrite_body
from weft.tir import Buffer, ForKind, PrimExpr, ProducerLoad, Var, const


@dataclass(frozen=True, slots=True, eq=False)
class PrefetchPlan:
    """The box of ``shape`` elements from ``low`` that one iteration of ``ahead.axis`` reads."""

    ahead: Prefetch
    low: tuple[PrimExpr, ...]
    shape: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StagePlan:
    """Everything that the loop nest of one stage is built from.

    The stage computes ``shape`` elements from index ``low`` on into ``buffers``, whose first
    element is the one at ``low`` (for the init and update of a scan: the scan's first element).
    ``values`` are relative to ``low`` and to the minima of reduction axes. ``loop_vars`` holds
    the constant 0 for a loop of one iteration.
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
        is_aliased = self.is_part_of_scan or self.stage.stored_in is not None
        return tuple(const(0) for _ in self.low) if is_aliased else self.low

    def absolute(self, axis: IterVar, position: int) -> PrimExpr:
        """The absolute index of ``axis``, which is the root axis number ``position``."""
        low = self.low[position] if position < len(self.low) else axis.min
        return low + self.values[axis]

    def vars_down_to(self, axis: IterVar) -> Iterator[Var]:
        """The loop variables from the outermost loop down to the loop of ``axis``."""
        for leaf in self.stage.leaf_iter_vars:
            var = self.loop_vars[leaf]
            if isinstance(var, Var):
                yield var
            if leaf is axis:
                return


def inlined_bodies(schedule: ScheduleState) -> dict[StageState, tuple[PrimExpr, ...]]:
    """The body of each compute stage that is not inlined, with inlined producers substituted."""
    by_tensor = {t: s for s in schedule.stages for t in s.tensors}
    bodies: dict[StageState, tuple[PrimExpr, ...]] = {}

    def on_load(e: ProducerLoad) -> PrimExpr:
        stage = by_tensor.get(e.producer)
        if stage is None or stage.attach != INLINE or not isinstance(stage.op, ComputeOp):
            return e
        # Producers come first in ``stages``, so this body is free of inlined loads already.
        values = {a.var: i for a, i in zip(stage.op.axis, e.indices, strict=True)}
        return rewrite_body((bodies[stage][e.producer.value_index],), values)[0]

    for stage in schedule.stages:
        if isinstance(stage.op, ComputeOp):
            bodies[stage] = rewrite_body(stage.op.body, {}, on_load)
    return {s: body for s, body in bodies.items() if s.attach != INLINE}


def tensors_of(stage: StageState) -> dict[Tensor, int]:
    """The tensors of a stage with their output indices."""
    return {t: i for i, t in enumerate(stage.tensors)}


def attach_to_scans(schedule: ScheduleState) -> None:
    """Attach root stages that depend on the state of a scan to the scan's time loop.

    Raises ``ScheduleError`` for a stage that reads the state but feeds no update.
    """
    for scan in schedule.stages:
        if not isinstance(scan.op, ScanOp):
            continue
        updates = [schedule.stage_of(t) for t in scan.op.update]
        for stage in _reading(schedule, scan.op.states) | dict.fromkeys(updates):
            if stage not in updates and not any(schedule.reads_through(stage, u)
                                                for u in updates):
                raise stage.error(f"it reads the state of {scan.name}, but no update reads it",
                                  help=f"read {scan.name} itself")
            # A stage that was attached to a loop further inside stays there.
            if stage.attach == ROOT:
                stage.attach = AttachAt(scan, scan.op.axis)


def _reading(schedule: ScheduleState, states: tuple[Tensor, ...]) -> dict[StageState, None]:
    """The stages that read ``states``, directly or transitively, in stage order."""
    found: dict[StageState, None] = {}
    for stage in schedule.stages:
        if not isinstance(stage.op, ScanOp) and any(
            t in states or schedule.stage_of(t) in found for t in input_tensors(stage.op)
        ):
            found[stage] = None
    return found


def check_attachments(schedule: ScheduleState) -> None:
    """Refuse stages attached inside vectorized loops, or to loops that no longer exist."""
    for stage in schedule.stages:
        at = stage.attach
        if not isinstance(at, AttachAt):
            continue
        if at.stage.attach == INLINE:
            raise stage.error(f"it is computed at {at.stage.name}, which is inlined")
        depth = at.stage.leaf_index(at.axis)
        for leaf in at.stage.leaf_iter_vars[: depth + 1]:
            if at.stage.kinds.get(leaf) is ForKind.VECTORIZED:
                raise stage.error(
                    f"it is computed inside the vectorized axis {leaf.name} of {at.stage.name}",
                    help="compute it at an outer loop, or reorder the vectorized axis inwards",
                )


def check_inside(reader: StageState, stage: StageState, at: AttachAt) -> None:
    """Refuse a reader of ``stage`` that is outside the loop to which ``stage`` is attached."""
    depth = at.stage.leaf_index(at.axis)
    where, inside = reader, True
    while where is not at.stage and inside:
        outer = where.attach
        inside = isinstance(outer, AttachAt) and (
            outer.stage is not at.stage or outer.stage.leaf_index(outer.axis) >= depth
        )
        if isinstance(outer, AttachAt):
            where = outer.stage
    if not inside:
        raise ScheduleError(
            f"{stage.name} is computed at loop {at.axis.name} of {at.stage.name}, but "
            f"{reader.name}, which reads it, is outside that loop",
            help=f"compute {reader.name} at that loop too, or {stage.name} at the root",
        )
