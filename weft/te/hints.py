"""The hints of a prefetch, one per cache line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from weft.te.plan import PrefetchPlan, StagePlan
from weft.te.state import Readers, ceil_div
from weft.te.tensor import IterVar
from weft.tir import Buffer, Evaluate, For, ForKind, Stmt, substitute
from weft.tir import expr as tir
from weft.tir.expr import BufferLoad, PrimExpr, Var, const, floordiv, floormod, int_value

CACHE_LINE = 64  # bytes that one prefetch hint fetches
# Variables with the extents of their ranges, which start at 0.
Counters: TypeAlias = "list[tuple[PrimExpr, PrimExpr]]"


def lines_of_box(
    plan: PrefetchPlan, buffer: Buffer, low: Sequence[PrimExpr], var: Var
) -> list[Stmt]:
    """One hint per cache line of the box that a later iteration of the loop of ``var`` reads.

    ``low`` is the index of the first element of ``buffer``.
    """
    later = {var: var + plan.ahead.offset}
    first = [substitute(a, later) - b for a, b in zip(plan.low, low, strict=True)]
    line = _elements_of_line(buffer)
    # Only elements along the last axis share a cache line.
    steps = [1] * (len(plan.shape) - 1) + [line]
    indices, loops = list[PrimExpr](), list[tuple[Var, PrimExpr]]()
    for start, size, step in zip(first, plan.shape, steps, strict=False):
        extent = ceil_div(size, const(step))
        if int_value(extent) == 1:
            indices.append(start)
            continue
        ahead = Var(f"{buffer.name}.ahead")
        loops.append((ahead, extent))
        indices.append(start + ahead * step)
    body = _hint("prefetch", buffer, indices)
    for ahead, extent in reversed(loops):
        body = For(ahead, const(0), extent, ForKind.SERIAL, body)
    return [body]


def share_of_next_block(
    plan: PrefetchPlan, stage: StagePlan, buffer: Buffer, low: Sequence[PrimExpr]
) -> list[Stmt]:
    """The hints of one iteration: its share of the block that follows the block of ``plan``.

    The shares are whole elements. If a share is not a whole number of lines, consecutive iterations
    hint the same line, which costs a load that hits the cache.
    """
    ahead, readers = plan.ahead, plan.ahead.readers
    assert readers is not None
    block = _contiguous_size(plan, stage)
    iteration, iterations = _numbered(_runs(stage, readers), _loops(stage, readers, ahead.axis))
    share = ceil_div(block, iterations)
    *outer, last = (a - b for a, b in zip(plan.low, low, strict=True))
    distance = block if readers.distance is None else const(readers.distance)
    start = last + distance + iteration * share
    line = _elements_of_line(buffer)
    # A symbolic share counts as one line: for a larger share, the hardware prefetcher loads the
    # rest.
    lines = math.ceil((int_value(share) or line) / line)
    # Into L2 alone, because the current block is passing through L1.
    return [_hint("prefetch_l2", buffer, [*outer, start + number * line])
            for number in range(lines)]


def _contiguous_size(plan: PrefetchPlan, stage: StagePlan) -> PrimExpr:
    """The elements of the box of ``plan``; ``ScheduleError`` if they are not contiguous."""
    size: PrimExpr = const(1)
    is_whole = True
    for extent, whole in zip(reversed(plan.shape), reversed(plan.ahead.tensor.shape), strict=True):
        if not is_whole and int_value(extent) != 1:
            raise stage.stage.error(f"prefetch_next_block of {plan.ahead.tensor.name}, whose block "
                                    "is not contiguous")
        size = size * extent
        is_whole = is_whole and _same_size(extent, whole)
    return size


def _same_size(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (int_value(a) is not None and int_value(a) == int_value(b))


def _runs(stage: StagePlan, readers: Readers) -> Counters:
    """The number of the current run along each axis, and how many there are."""
    return [(floormod(floordiv(_value_around(stage, readers.within, axis), const(step)), count),
             count) for axis, step, count in readers.runs]


def _loops(stage: StagePlan, readers: Readers, axis: IterVar) -> Counters:
    """The loops of a run down to ``axis``, with their extents."""
    leaves, leaf_index = stage.stage.leaf_iter_vars, stage.stage.leaf_index
    return [(stage.loop_vars[leaf], stage.extents[leaf])
            for leaf in leaves[leaf_index(readers.within):leaf_index(axis) + 1]]


def _numbered(*counters: Counters) -> tuple[PrimExpr, PrimExpr]:
    """The number of an iteration of nested counters, outermost first, and how many there are."""
    number, total = const(0), const(1)
    for value, extent in (counter for group in counters for counter in group):
        number, total = number * extent + value, total * extent
    return number, total


def _value_around(stage: StagePlan, loop: IterVar, axis: IterVar) -> PrimExpr:
    """The index along root axis ``axis`` at the start of a run of ``loop``."""
    leaves = stage.stage.leaf_iter_vars
    inside = leaves[stage.stage.leaf_index(loop):]
    start: dict[Var, PrimExpr] = {
        var: const(0) for var in (stage.loop_vars[leaf] for leaf in inside) if isinstance(var, Var)}
    return substitute(stage.absolute(axis, stage.stage.root_iter_vars.index(axis)), start)


def _elements_of_line(buffer: Buffer) -> int:
    return max(1, CACHE_LINE // buffer.dtype.itemsize)


def _hint(name: str, buffer: Buffer, indices: Sequence[PrimExpr]) -> Stmt:
    return Evaluate(tir.call("handle", name, BufferLoad(buffer, tuple(indices))))
