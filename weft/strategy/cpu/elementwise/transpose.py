"""Transposed accesses: a source that is contiguous along another axis than the result.

The loops become tiles that are transposed in registers: both sides of a tile are whole vectors, so
every cache line is read once and written once. The source may be contiguous along part of an axis
of the result, as the block of ``NCHW16c`` is part of the channels of ``NCHW``. Two or three columns
are too few for a vector: they are computed along the rows and interleaved in registers, and so are
a few stacked tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.strategy.access import is_strided, stride_along
from weft.strategy.cpu.machine_model import has_masks
from weft.strategy.extents import highest_size, is_fixed, is_multiple, size_of
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.te.walk import loads_of
from weft.tir.expr import PrimExpr, ProducerLoad
from weft.tir.row_major import element_count
from weft.tir.transform.interleave_tile import ANNOTATION as INTERLEAVE
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.transpose_tile import ANNOTATION

MIN_TILE = 4  # rows or columns of a tile; fewer do not pay for the shuffles
MOST_INTERLEAVED = 8  # columns that come from different sources, such as those of a stack
FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class TransposedAccess:
    """Along loop ``index`` the source is contiguous, in runs of ``run`` elements.

    ``narrow``: the innermost loop has too few iterations for a vector.
    """

    index: int
    run: int
    narrow: bool = False


def find_transposed_access(
    groups: Sequence[Sequence[te.IterVar]], body: tuple[PrimExpr, ...], lanes: int
) -> TransposedAccess | None:
    """The first load that is contiguous along another loop than the innermost one.

    ``groups`` are the axes that each loop fuses. ``None`` if every load is contiguous along the
    innermost loop or does not depend on it.
    """
    if len(groups) < 2 or len(body) != 1:
        return None
    columns, count = groups[-1][-1], _extent(groups[-1])
    few = 1 < count <= MOST_INTERLEAVED and all(is_fixed(a.extent) for a in groups[-1])
    # More columns have vectors of their own, unless each comes from another source.
    if few and (count < MIN_TILE or all(
            stride_along(load, columns) == 0 for load in loads_of(body))):
        return _narrow_transpose(groups, body, lanes)
    for load in loads_of(body):
        # Broadcast, contiguous or unknown: nothing to transpose.
        if not is_strided(load, columns, size=lanes if _extent(groups[-1]) > lanes else None):
            continue
        for index, group in enumerate(groups[:-1]):
            run = _run(load, group, lanes)
            if run:
                return TransposedAccess(index, run)
    return None


def _narrow_transpose(
    groups: Sequence[Sequence[te.IterVar]], body: tuple[PrimExpr, ...], lanes: int
) -> TransposedAccess | None:
    """A few columns: every read must be contiguous along the rows, or ignore them."""
    steps = [stride_along(load, groups[-2][-1]) for load in loads_of(body)]
    is_row = 1 in steps and all(step in (0, 1) for step in steps)
    long_enough = _extent(groups[-2]) >= MIN_TILE
    return TransposedAccess(len(groups) - 2, lanes, narrow=True) if is_row and long_enough else None


def _run(load: ProducerLoad, group: Sequence[te.IterVar], lanes: int) -> int:
    """The contiguous elements that a load reads along a loop, up to ``lanes``; 0 for too few."""
    axis, extent = group[-1], _extent(group)
    if extent < MIN_TILE:
        return 0
    if stride_along(load, axis) == 1:
        return min(lanes, extent)
    run = lanes
    while run >= MIN_TILE:
        if _is_multiple(group, run) and stride_along(load, axis, size=run) == 1:
            return run
        run //= 2
    return 0


def _extent(group: Sequence[te.IterVar]) -> int:
    total = 1
    for axis in group:
        total *= size_of(axis.extent)
    return total


def _is_multiple(group: Sequence[te.IterVar], run: int) -> bool:
    return is_multiple(element_count(axis.extent for axis in group), run)


def tile_transpose(
    stage: te.Stage, loops: list[te.IterVar], access: TransposedAccess, target: CpuTarget
) -> list[te.IterVar]:
    """Tile the transposed loop and the innermost one; returns the loops around the tiles."""
    lanes = target.lanes(stage.tensors[0].dtype)
    rows, columns = loops[access.index], loops[-1]
    if access.narrow:
        tiles, row = stage.split(rows, factor=access.run)
        for axis in (row, columns):
            stage.pragma(axis, INTERLEAVE, 1)
        if has_masks(target) and not is_fixed(rows.extent):
            stage.pragma(columns, MASKED_TAIL, lanes)
        return [*loops[:-2], tiles]
    outside = [axis for axis in loops[:-1] if axis is not rows]
    row_tile, row = stage.split(rows, factor=access.run)
    column_tile, column = stage.split(columns, factor=lanes)
    # With few rows, tiles proceed along the source's rows; with many, along the result's.
    tiles = [row_tile, column_tile]
    if (highest_size(rows.extent) or math.inf) <= FEW_ROWS:
        tiles.reverse()
    stage.reorder(*outside, *tiles, row, column)
    stage.pragma(row, ANNOTATION, 1)
    stage.unroll(row)
    stage.vectorize(column)
    if has_masks(target) and not (is_fixed(rows.extent) and is_fixed(columns.extent)):
        stage.pragma(column, MASKED_TAIL, lanes)
    return [*outside, *tiles]
