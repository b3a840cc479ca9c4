"""The allocated shape of a stage, including the padding that ``storage_align`` asks for."""

from __future__ import annotations

from weft.te.state import StageState
from weft.tir.expr import PrimExpr, const, int_value


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
