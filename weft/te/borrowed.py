"""Whether a stage may be kept in the memory of its consumer: no element is lost or read late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.te.plan import StagePlan
from weft.te.state import AttachAt, StageState
from weft.te.tensor import ComputeOp
from weft.tir.expr import PrimExpr, ProducerLoad, Var, int_value
from weft.tir.visitor import post_order

Box = Sequence[tuple[PrimExpr, PrimExpr]]


def check_borrowed(
    stage: StageState,
    owner: StagePlan,
    readers: Mapping[StageState, Sequence[ProducerLoad]],
    standing: set[Var],
    box: Box,
) -> None:
    """Refuse to keep ``box`` of ``stage`` in the memory of ``owner`` where a value would change.

    ``standing`` are the variables of the loops around the stage. ``owner`` must read each element
    where it writes it, everyone else before it starts, and an iteration must write the whole box:
    what it leaves out belongs to another iteration, which may be over.
    """
    consumer = owner.stage
    if not isinstance(stage.attach, AttachAt) or stage.attach.stage is not consumer:
        raise stage.error(f"it is kept in {consumer.name}, but not computed at a loop of it")
    for reader, loads in readers.items():
        if reader is consumer:
            if not all(_is_own(load, consumer) for load in loads):
                raise stage.error(f"it is kept in {consumer.name}, which reads it elsewhere than "
                                  "where it writes")
        elif reader.attach != stage.attach:
            raise stage.error(f"it is kept in {consumer.name}, but {reader.name}, which reads it, "
                              "is not computed at the same loop")
    for place, (_, extent) in enumerate(box):
        if not _is_whole(owner, place, extent, standing):
            raise stage.error(f"it is kept in {consumer.name}, of which one iteration of loop "
                              f"{stage.attach.axis.name} does not write all that is read")


def _is_own(load: ProducerLoad, consumer: StageState) -> bool:
    axes = consumer.op.axis if isinstance(consumer.op, ComputeOp) else ()
    return all(i is a.var for i, a in zip(load.indices, axes, strict=True))


def _is_whole(owner: StagePlan, place: int, extent: PrimExpr, standing: set[Var]) -> bool:
    """Whether the loops inside walk all of ``extent`` elements along one axis."""
    value = owner.values[owner.stage.root_iter_vars[place]]
    used = {e for e in post_order(value) if isinstance(e, Var)}
    if not used & standing:
        return True
    steps = [int_value(owner.extents[leaf]) or 0 for leaf in owner.stage.leaf_iter_vars
             if owner.loop_vars[leaf] in used - standing]
    return int_value(extent) == math.prod(steps)
