"""Legality of ``store_in``: whether a stage may alias the storage of its consumer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.te.plan import StagePlan
from weft.te.state import AttachAt, StageState
from weft.te.tensor import ComputeOp
from weft.tir import PrimExpr, ProducerLoad, Var, int_value, post_order

Box = Sequence[tuple[PrimExpr, PrimExpr]]


def check_aliasing(stage: StageState, owner: StagePlan,
                   readers: Mapping[StageState, Sequence[ProducerLoad]], enclosing: set[Var],
                   box: Box) -> None:
    """Raise ``ScheduleError`` if keeping ``box`` of ``stage`` in ``owner``'s buffer is wrong.

    ``enclosing`` holds the variables of the loops around the stage; ``box`` has one
    (low, extent) pair per axis. Three conditions must hold: ``owner`` reads each element at the
    index where it writes it; every other reader runs before ``owner`` does, at the same loop; and
    one iteration of the attach loop overwrites the whole box, because the elements that it leaves
    out belong to another iteration, which may have finished already.
    """
    consumer = owner.stage
    if not isinstance(stage.attach, AttachAt) or stage.attach.stage is not consumer:
        raise stage.error(f"it is stored in {consumer.name}, but not computed at one of its loops")
    for reader, loads in readers.items():
        if reader is consumer:
            if not all(_reads_at_written_index(load, consumer) for load in loads):
                raise stage.error(f"it is stored in {consumer.name}, which reads it at another "
                                  "index than it writes")
        elif reader.attach != stage.attach:
            raise stage.error(f"it is stored in {consumer.name}, but its reader {reader.name} "
                              "is not computed at the same loop")
    for dimension, (_, extent) in enumerate(box):
        if not _writes_whole_extent(owner, dimension, extent, enclosing):
            raise stage.error(f"it is stored in {consumer.name}, but one iteration of loop "
                              f"{stage.attach.axis.name} does not write all that it reads")


def _reads_at_written_index(load: ProducerLoad, consumer: StageState) -> bool:
    axes = consumer.op.axis if isinstance(consumer.op, ComputeOp) else ()
    return all(i is a.var for i, a in zip(load.indices, axes, strict=True))


def _writes_whole_extent(
    owner: StagePlan, dimension: int, extent: PrimExpr, enclosing: set[Var]
) -> bool:
    """Whether the loops below the attach point cover ``extent`` elements along one axis."""
    value = owner.values[owner.stage.root_iter_vars[dimension]]
    used = {e for e in post_order(value) if isinstance(e, Var)}
    # Without an enclosing variable, each iteration writes the whole axis.
    if not used & enclosing:
        return True
    steps = [int_value(owner.extents[leaf]) or 0 for leaf in owner.stage.leaf_iter_vars
             if owner.loop_vars[leaf] in used - enclosing]
    return int_value(extent) == math.prod(steps)
