"""How many elements the memory of a stage has along each axis, with what alignment adds."""

from __future__ import annotations

from weft.te.state import StageState
from weft.tir.expr import PrimExpr, const, int_value


def padded_shape(stage: StageState, shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """``shape`` with the axes after aligned ones made longer.

    Raises ``ScheduleError`` where a size is symbolic, or no length gives the distance asked for.
    """
    if not stage.alignments:
        return shape
    sizes = list(shape)
    distance: int | None = 1
    for place in reversed(range(1, len(sizes))):
        wanted = stage.alignments.get(stage.axis[place - 1])
        size = int_value(sizes[place])
        if wanted is not None:
            if size is None or distance is None:
                raise stage.error(f"storage_align of {stage.axis[place - 1].name}, behind which "
                                  f"the sizes {shape[place:]} are not constant")
            size = _longer(stage, size, distance, *wanted)
            sizes[place] = const(size)
        distance = None if size is None or distance is None else distance * size
    return tuple(sizes)


def _longer(stage: StageState, size: int, distance: int, factor: int, offset: int) -> int:
    for longer in range(size, size + factor):
        if longer * distance % factor == offset:
            return longer
    raise stage.error(
        f"storage_align: no multiple of {distance} elements is {factor} * n + {offset}",
        help="align the axes inside differently",
    )
