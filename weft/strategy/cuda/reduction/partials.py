"""A reduction by the threads of a block: partial results in registers, combined in shared memory.

Each of ``lanes`` threads reduces every ``lanes``-th vector of a row into registers, so that the
loads of a warp are adjacent. The partial results are then combined by a tree of fixed shape:
results are the same in each run.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import te
from weft.te.tensor import REDUCE

# Partial results that one thread combines in one level of the tree. Fewer levels mean fewer
# barriers, more partial results per thread longer chains of additions.
FAN_IN = 8


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The threads of a block: ``rows`` times ``lanes``; a lane loads ``vector`` elements at once.

    ``row_tag`` numbers the rows of the block, ``lane_tag`` the threads of a row.
    """

    rows: int
    lanes: int
    vector: int = 1
    row_tag: str = "threadIdx.y"
    lane_tag: str = "threadIdx.x"


ONE_THREAD = BlockShape(1, 1)


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """The loop over blocks in which all stages of a group run."""

    stage: te.Stage
    axis: te.IterVar


def tensors_of(made: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor:
    """The first of the tensors that ``rfactor`` or ``cache_write`` returns."""
    return made[0] if isinstance(made, tuple) else made


def reduce_in_block(
    s: te.Schedule, stage: te.Stage, loops: list[te.IterVar], row: int | None,
    shape: BlockShape, at: AttachPoint,
) -> None:
    """Share the reduction of ``stage`` among the lanes of its row.

    ``loops`` are its reduction loops, outermost first; vectors run along the last one. ``row`` is
    the position of the data axis whose indices are the rows of a block, if it has any.
    """
    tensor, inside = stage.tensors[0], list[te.IterVar]()
    if shape.lanes == 1:
        _combine(s, stage, row, shape, at)
        return
    if shape.vector > 1:
        loops[-1], lane_of_vector = stage.split(loops[-1], factor=shape.vector)
        inside = [lane_of_vector]
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    _, lane = stage.split(flat, factor=shape.lanes)
    if not inside:
        partial = tensors_of(s.rfactor(tensor, lane, -1))
        own = tensors_of(s.cache_write(partial, "local"))
    else:
        own = tensors_of(s.rfactor(tensor, stage.fuse(lane, *inside), -1))
        s[own].set_scope("local")
        lane, _ = stage.split(_reduce_loops(stage)[0], factor=shape.vector)
        partial = tensors_of(s.rfactor(tensor, lane, -1))
    thread = _bind_lanes(s[partial], row, shape, at)
    s[own].compute_at(s[partial], thread)
    _accumulate(s[own], shape.vector)
    _combine(s, stage, row, shape, at)


def _combine(s: te.Schedule, stage: te.Stage, row: int | None, shape: BlockShape,
             at: AttachPoint) -> None:
    """Levels of partial results, each ``FAN_IN`` times fewer, until one thread can finish."""
    tensor, width = stage.tensors[0], shape.lanes
    while width > FAN_IN:
        width = max(width // FAN_IN, 2)
        # The outer loop is reduced, so that the reads of adjacent threads are adjacent.
        _, lane = stage.split(_reduce_loops(stage)[0], factor=width)
        partial = tensors_of(s.rfactor(tensor, lane, -1))
        own = tensors_of(s.cache_write(partial, "local"))
        s[own].compute_at(s[partial], _bind_lanes(s[partial], row, shape, at))
    if stage is not at.stage:
        stage.compute_at(at.stage, at.axis)


def _bind_lanes(stage: te.Stage, row: int | None, shape: BlockShape,
                at: AttachPoint) -> te.IterVar:
    """Partial results of a block in shared memory; returns the loop over lanes."""
    stage.set_scope("shared")
    stage.compute_at(at.stage, at.axis)
    *data, lane = stage.axis
    bind_row(stage, data, row, shape)
    stage.bind(lane, shape.lane_tag)
    return lane


def bind_row(stage: te.Stage, data: list[te.IterVar], row: int | None, shape: BlockShape) -> None:
    """Give the rows of the block to threads; all other data axes have one index inside a block."""
    if row is not None and shape.rows > 1:
        stage.bind(data[row], shape.row_tag)


def _accumulate(stage: te.Stage, vector: int) -> None:
    """Vectors innermost, so that one load serves all lanes of a vector."""
    if vector > 1:
        *others, last = stage.axis
        stage.reorder(*others, *_reduce_loops(stage), last)
        stage.vectorize(last)


def _reduce_loops(stage: te.Stage) -> list[te.IterVar]:
    return [axis for axis in stage.leaf_iter_vars if axis.kind == REDUCE]
