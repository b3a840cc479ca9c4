"""The state of a schedule: one stage per operation, with its loops and its attach point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, TypeAlias

from weft import tir
from weft.support.dataclass import dataclass
from weft.support.errors import ScheduleError
from weft.te.tensor import (
    REDUCE,
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
)
from weft.te.walk import input_tensors


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``parent = outer * width + inner``. Exactly one of ``factor`` and ``nparts`` is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None

    def extents(self, parent: tir.PrimExpr) -> tuple[tir.PrimExpr, tir.PrimExpr]:
        """The extents of ``outer`` and ``inner``, given the extent of the parent.

        A factor above a constant extent shrinks to it, so that short axes need no guard.
        """
        if self.factor is not None:
            size = tir.int_value(parent)
            inner = tir.const(self.factor if size is None else max(1, min(self.factor, size)))
            return ceil_div(parent, inner), inner
        outer: tir.PrimExpr = tir.const(self.nparts or 1)
        if tir.int_value(parent) is not None:
            outer = tir.maximum(tir.minimum(outer, parent), tir.const(1))
        return outer, ceil_div(parent, outer)


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """``fused = outer * extent(inner) + inner``."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation: TypeAlias = "Split | Fuse"


def ceil_div(a: tir.PrimExpr, b: tir.PrimExpr) -> tir.PrimExpr:
    """``a / b`` rounded up, for positive ``b``."""
    width = tir.int_value(b)
    return a if width == 1 else tir.floordiv(a + (b - 1), b)


@dataclass(frozen=True, slots=True)
class AttachAt:
    """Attach point: loop ``axis`` of ``stage``."""

    stage: StageState
    axis: IterVar


@dataclass(frozen=True, slots=True, eq=False)
class Readers:
    """The runs of loop ``within`` that read one block: ``runs`` are axes, steps and counts.

    There is a run for each ``step`` elements along each axis, ``count`` runs in total. The next
    block starts ``distance`` elements further in memory; ``None`` if the blocks are adjacent.
    """

    within: IterVar
    runs: tuple[tuple[IterVar, int, tir.PrimExpr], ...]
    distance: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """In loop ``axis``, prefetch what iteration ``current + offset`` reads of ``tensor``.

    With ``readers``, the iterations of all runs together prefetch the next block of ``tensor`` in
    memory, an equal share each.
    """

    tensor: Tensor
    axis: IterVar
    offset: int
    readers: Readers | None = None


ROOT = "root"
INLINE = "inline"
Attach: TypeAlias = "str | AttachAt"


# Compared by identity: stages are mutable, and keys of dictionaries.
@dataclass(slots=True, eq=False)
class StageState:
    """The schedule of one operation.

    Consumers read ``tensors``, which stay the same when ``cache_write`` or ``rfactor`` replaces
    the definition ``op``. ``leaf_iter_vars`` are the loops, outermost first; ``stored_in`` is the
    consumer whose buffer the stage aliases.
    """

    schedule: ScheduleState
    op: Operation
    tensors: tuple[Tensor, ...]
    is_output: bool = False
    relations: list[Relation] = field(default_factory=list)
    leaf_iter_vars: list[IterVar] = field(default_factory=list)
    kinds: dict[IterVar, tir.ForKind] = field(default_factory=dict)
    thread_tags: dict[IterVar, str] = field(default_factory=dict)
    pragmas: dict[IterVar, dict[str, Any]] = field(default_factory=dict)
    attach: Attach = ROOT
    scope: str = "global"
    tensorized: tuple[IterVar, tir.Instruction] | None = None
    prefetches: list[Prefetch] = field(default_factory=list)
    alignments: dict[IterVar, tuple[int, int]] = field(default_factory=dict)
    is_double_buffered: bool = False
    stored_in: StageState | None = None

    def __post_init__(self) -> None:
        if isinstance(self.op, ComputeOp):
            self.leaf_iter_vars = [*self.op.axis, *self.op.reduce_axis]
        elif isinstance(self.op, ScanOp):
            self.leaf_iter_vars = [self.op.axis]

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def is_placeholder(self) -> bool:
        return isinstance(self.op, PlaceholderOp)

    @property
    def is_reduction(self) -> bool:
        return isinstance(self.op, ComputeOp) and bool(self.op.reduce_axis)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The data axes of the current definition; raises ``ScheduleError`` for non-computes."""
        return self.require_compute("axis").axis

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes of the current definition."""
        return self.require_compute("reduce_axis").reduce_axis

    @property
    def root_iter_vars(self) -> tuple[IterVar, ...]:
        op = self.op
        if isinstance(op, ScanOp):
            return (op.axis,)
        return (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()

    def leaf_index(self, axis: IterVar) -> int:
        """The position of ``axis`` among the loops; raises ``ScheduleError`` for any other axis."""
        if axis in self.leaf_iter_vars:
            return self.leaf_iter_vars.index(axis)
        name = getattr(axis, "name", axis)
        replaced = [(r.parent,) if isinstance(r, Split) else (r.outer, r.inner)
                    for r in self.relations]
        if any(axis in axes for axes in replaced):
            raise self.error(f"axis {name} is no longer a loop: it was split or fused",
                             help="name one of the axes that the split or fuse returned")
        raise self.error(f"axis {name} does not belong to this stage")

    def error(self, what: str, *, help: str | None = None) -> ScheduleError:
        loops = ", ".join(a.name for a in self.leaf_iter_vars)
        return ScheduleError(f"{self.name}: {what}", notes=[f"loops: {loops or 'none'}"], help=help)

    def require_compute(self, primitive: str) -> ComputeOp:
        """The compute definition; raises ``ScheduleError`` for externs, scans and placeholders."""
        if isinstance(self.op, ComputeOp):
            return self.op
        kinds: dict[type, str] = {ExternOp: "an extern body", ScanOp: "a scan"}
        kind = kinds.get(type(self.op), "a placeholder")
        raise self.error(f"{primitive} does not apply to {kind}")

    def require_movable(self, primitive: str) -> None:
        """Raise ``ScheduleError`` if a scan fixes the attach point of this stage."""
        if isinstance(self.op, ScanOp):
            raise self.error(f"{primitive} of a scan: its time loop stays at the root")
        for stage in self.schedule.stages:
            op = stage.op
            if isinstance(op, ScanOp) and any(t in (*op.init, *op.update) for t in self.tensors):
                raise self.error(f"{primitive} of an init or update of {stage.name}, which is "
                                 "computed in the buffer and the loop of the scan",
                                 help="cache_write it and move the new stage")

    def require_own_memory(self, primitive: str) -> None:
        """Raise ``ScheduleError`` if the stage aliases the buffer of another stage."""
        if self.stored_in is not None:
            raise self.error(f"{primitive} of a stage that is stored in {self.stored_in.name}")

    def require_unused(self, axis: IterVar, primitive: str) -> None:
        """Refuse to restructure a loop that has a kind, a prefetch or attached stages already."""
        if axis in self.kinds:
            raise self.error(
                f"{primitive} of axis {axis.name}, which is already {self.kinds[axis].value}",
                help=f"{primitive} first, then choose how the resulting loops run",
            )
        self.require_no_instruction(axis, primitive)
        for ahead in self.prefetches:
            if ahead.axis is axis:
                raise self.error(f"{primitive} of axis {axis.name}, in which {ahead.tensor.name} "
                                 "is prefetched", help=f"{primitive} first, then prefetch")
        for stage in self.schedule.stages:
            at = stage.attach
            if isinstance(at, AttachAt) and at.stage is self and at.axis is axis:
                raise self.error(
                    f"{primitive} of axis {axis.name}, at which {stage.name} is computed",
                    help=f"{primitive} first, then compute_at one of the resulting loops",
                )

    def require_ahead(self, ahead: Prefetch) -> None:
        """Refuse a prefetch of registers, or of a stage computed in the iteration that reads it."""
        source = self.schedule.stage_of(ahead.tensor)
        if source.scope == "local":
            raise self.error(f"prefetch of {ahead.tensor.name}, which is kept in registers")
        at = source.attach
        if (isinstance(at, AttachAt) and at.stage is self
                and self.leaf_index(at.axis) >= self.leaf_index(ahead.axis)):
            raise self.error(f"prefetch of {ahead.tensor.name}, which is computed in the iteration "
                             "that reads it")

    def require_no_instruction(self, axis: IterVar, primitive: str) -> None:
        """Refuse to change a loop that an instruction replaces."""
        depth = self.leaf_index(axis)
        if self.tensorized is not None and depth >= self.leaf_index(self.tensorized[0]):
            raise self.error(
                f"{primitive} of axis {axis.name}, which is part of the instruction "
                f"{self.tensorized[1].name}",
                help="tensorize last",
            )

    def set_kind(self, axis: IterVar, kind: tir.ForKind) -> None:
        """Set how a loop runs; raises ``ScheduleError`` if it has another kind already."""
        self.require_no_instruction(axis, kind.value)
        old = self.kinds.get(axis)
        if old is not None and old is not kind:
            raise self.error(f"axis {axis.name} is already {old.value}; it cannot be {kind.value}")
        self.kinds[axis] = kind

    def require_data(self, axis: IterVar, primitive: str, why: str) -> None:
        self.leaf_index(axis)
        if axis.kind == REDUCE:
            raise self.error(f"{primitive} of reduction axis {axis.name}: {why}",
                             help="rfactor the reduction to get a data axis out of it")

    def new_axis(self, name: str, extent: tir.PrimExpr, kind: str) -> IterVar:
        return IterVar(tir.Var(name), tir.const(0), extent, kind)


class ScheduleState(ABC):
    """All stages of a schedule, producers before consumers."""

    stages: list[StageState]
    outputs: tuple[Tensor, ...]
    trace: Any  # weft.te.trace.ScheduleTrace, which imports this module

    @abstractmethod
    def make_stage(self, op: Operation, tensors: tuple[Tensor, ...]) -> StageState:
        """A new stage of the class that the schedule uses."""

    def stage_of(self, tensor: Tensor | Operation) -> StageState:
        """The stage that computes ``tensor``; raises ``ScheduleError`` for a foreign tensor."""
        for stage in self.stages:
            if tensor is stage.op or any(tensor is t or tensor is t.op for t in stage.tensors):
                return stage
        name = getattr(tensor, "name", tensor)
        raise ScheduleError(f"{name} is not part of this schedule",
                            expected="a tensor that the outputs need")

    def consumers(self, stage: StageState) -> list[StageState]:
        """The stages that read ``stage``."""
        mine = stage.tensors
        return [s for s in self.stages if any(t in mine for t in input_tensors(s.op))]

    def reads_through(self, stage: StageState, other: StageState) -> bool:
        """Whether ``other`` depends on ``stage``, directly or transitively."""
        # The list grows while the loop walks it: breadth first, each stage once.
        seen: list[StageState] = [stage]
        for found in seen:
            for consumer in self.consumers(found):
                if consumer is other:
                    return True
                if consumer not in seen:
                    seen.append(consumer)
        return False
