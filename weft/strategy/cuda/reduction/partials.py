"""A reduction by the threads of a block: partial results in registers, then combined.

Each of ``lanes`` threads reduces every ``lanes``-th vector of a row into registers, so that the
loads of a warp are adjacent. The lanes then combine their results by shuffles and shared memory
(``weft.tir.transform.gpu.cross_thread_reduce``), in a fixed order: results are the same in each
run.
"""

from __future__ import annotations

from weft import te
from weft.support.dataclass import dataclass
from weft.te.tensor import REDUCE


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


def tensors_of(made: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor:
    """The first of the tensors that ``rfactor`` or ``cache_write`` returns."""
    return made[0] if isinstance(made, tuple) else made


def reduce_in_block(
    s: te.Schedule, stage: te.Stage, loops: list[te.IterVar], shape: BlockShape
) -> None:
    """Share the reduction of ``stage`` among the lanes of its row.

    ``loops`` are its reduction loops, outermost first; vectors run along the last one.
    """
    if shape.vector == 1:
        lane = _lanes_of(stage, loops, shape)[1]
    else:
        lane = _vector_lanes(s, stage, loops, shape)
    stage.bind(lane, shape.lane_tag)


def _lanes_of(stage: te.Stage, loops: list[te.IterVar], shape: BlockShape
              ) -> tuple[te.IterVar, te.IterVar]:
    """The steps of a lane and the lanes, which are outermost."""
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    step, lane = stage.split(flat, factor=shape.lanes)
    stage.reorder(lane, step)
    return step, lane


def _vector_lanes(s: te.Schedule, stage: te.Stage, loops: list[te.IterVar],
                  shape: BlockShape) -> te.IterVar:
    """Vectors of partial results in the registers of each lane; returns the loop over lanes."""
    loops[-1], element = stage.split(loops[-1], factor=shape.vector)
    flat = stage.fuse(*loops) if len(loops) > 1 else loops[0]
    _, lane = stage.split(flat, factor=shape.lanes)
    own = s[tensors_of(s.rfactor(stage.tensors[0], stage.fuse(lane, element), -1))]
    own.set_scope("local")
    lane, _ = stage.split(_reduce_loops(stage)[0], factor=shape.vector)
    own.compute_at(stage, lane)
    *others, last = own.axis
    own.reorder(*others, *_reduce_loops(own), last)
    own.vectorize(last)  # innermost: one load serves all elements of a vector
    return lane


def _reduce_loops(stage: te.Stage) -> list[te.IterVar]:
    return [axis for axis in stage.leaf_iter_vars if axis.kind == REDUCE]
