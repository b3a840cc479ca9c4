"""Transposed accesses through shared memory.

A source that is contiguous along another loop than the result is read in tiles: a warp loads rows
of the source, and stores rows of the result. The rows of a tile are padded by one element, so that
both sides reach 32 banks (Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA", 2009).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft import te
from weft.strategy.access import is_strided, stride_along
from weft.strategy.cuda.common.flat_grid import iterations
from weft.strategy.cuda.machine_model import WARP
from weft.support.dataclass import dataclass
from weft.te import loads_of, rewrite_body
from weft.te.tensor import PlaceholderOp, data_axis
from weft.tir import PrimExpr, ProducerLoad, Var, mentions
from weft.tir.row_major import element_count, ravel, unravel

TILE = WARP
TILE_ROWS = 8  # rows of a tile that the 256 threads of a block move at once
MIN_SIDE = 8  # a tile with fewer rows or columns leaves too many threads idle
MIN_ELEMENTS = 4096  # smaller tensors stay in L1


@dataclass(frozen=True, slots=True)
class TransposedLoads:
    """Loads that are contiguous along loop ``index`` and strided along the innermost one."""

    index: int
    loads: tuple[ProducerLoad, ...]


def find_transposed(
    groups: Sequence[Sequence[te.IterVar]], body: tuple[PrimExpr, ...]
) -> TransposedLoads | None:
    """The transposed loads of a stage whose loops fuse ``groups``; ``None`` without any."""
    if len(groups) < 2 or iterations([a for g in groups for a in g]) < MIN_ELEMENTS:
        return None
    columns = groups[-1]
    if iterations(columns) < MIN_SIDE:
        return None
    candidates = [load for load in loads_of(body)
                  if isinstance(load.producer.op, PlaceholderOp) and not loads_of(load.indices)
                  and is_strided(load, columns[-1])]
    for index, rows in enumerate(groups[:-1]):
        found = tuple(load for load in candidates if stride_along(load, rows[-1]) == 1)
        if found and iterations(rows) >= MIN_SIDE:
            return TransposedLoads(index, found)
    return None


def tile_transpose(
    s: te.Schedule, stage: te.Stage, groups: Sequence[Sequence[te.IterVar]],
    body: tuple[PrimExpr, ...], access: TransposedLoads,
) -> None:
    """Schedule ``stage``, whose body with inlined producers is ``body``, by tiles."""
    copies = [_copy_stage(s, stage, groups, load, access.index) for load in access.loads]
    replaced = dict(zip(access.loads, (load for _, load in copies), strict=True))
    new_body = rewrite_body(body, {}, lambda load: replaced.get(load, load))
    stage.op = dataclasses.replace(stage.require_compute("tile"), body=new_body)
    loops = [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]
    rows, columns = loops[access.index], loops[-1]
    others = [loop for loop in loops[:-1] if loop is not rows]
    row_tile, row = stage.split(rows, factor=TILE)
    column_tile, column = stage.split(columns, factor=TILE)
    step, row = stage.split(row, factor=TILE_ROWS)
    stage.reorder(*others, row_tile, column_tile, row, column, step)
    block = stage.fuse(*others, row_tile, column_tile)
    stage.bind(block, "blockIdx.x")
    stage.bind(row, "threadIdx.y")
    stage.bind(column, "threadIdx.x")
    for copy, _ in copies:
        _schedule_copy(copy, stage, block)


def _copy_stage(
    s: te.Schedule, stage: te.Stage, groups: Sequence[Sequence[te.IterVar]], load: ProducerLoad,
    index: int,
) -> tuple[te.Stage, ProducerLoad]:
    """A stage with what ``load`` reads, rows last, and the load of ``stage`` that replaces it."""
    used = [g for g in groups if any(mentions(i, a.var) for a in g for i in load.indices)]
    order = [*(g for g in used if g is not groups[index] and g is not groups[-1]),
             groups[-1], groups[index]]
    axes, values = [], dict[Var, PrimExpr]()
    for group in order:
        fused = data_axis(group[0].name, element_count(axis.extent for axis in group))
        axes.append(fused)
        values.update(_parts(fused.var, group))
    source = rewrite_body((load,), values)
    copy = te.ComputeOp(f"{load.producer.name}.tile", tuple(axes), (), source)
    made = s.make_stage(copy, copy.outputs)
    s.stages.insert(s.stages.index(stage), made)
    return made, copy.output(0)[tuple(map(_whole, order))]


def _parts(fused: Var, group: Sequence[te.IterVar]) -> dict[Var, PrimExpr]:
    """The axes of a group as quotients and remainders of the fused index."""
    indices = unravel(fused, [axis.extent for axis in group])
    return {axis.var: index for axis, index in zip(group, indices, strict=True)}


def _whole(group: Sequence[te.IterVar]) -> PrimExpr:
    """The fused index of a group."""
    return ravel([axis.var for axis in group], [axis.extent for axis in group])


def _schedule_copy(copy: te.Stage, stage: te.Stage, block: te.IterVar) -> None:
    """Rows of the source by warps, in shared memory of one padded tile."""
    copy.set_scope("shared")
    *_, column, row = copy.axis
    copy.storage_align(column, factor=TILE, offset=1)
    copy.compute_at(stage, block)
    step, line = copy.split(column, factor=TILE_ROWS)
    copy.reorder(line, row, step)
    copy.bind(line, "threadIdx.y")
    copy.bind(row, "threadIdx.x")
