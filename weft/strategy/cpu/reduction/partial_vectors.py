"""Reductions along the contiguous axis: vectors of partial results, reduced horizontally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import te
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.schedule import vectorize_innermost
from weft.strategy.cpu.machine_model import has_masks
from weft.target import CpuTarget

# A reduction this long gets several vectors of partial results, which hide the add latency.
LONG_REDUCTION = 128
PARTIAL_VECTORS = 4
# With fewer lanes a chain of scalar operations is as fast.
MIN_LANES = 4


def lanes_along(extent: int, lanes: int) -> int:
    """The lanes of partial results for a reduction of ``extent``; 1 if it is too short.

    A short reduction gets vectors narrower than the target's: lanes beyond its end would idle.
    """
    while lanes > extent:
        lanes //= 2
    return lanes if lanes >= MIN_LANES else 1


def vectors_along(
    op: te.ComputeOp, extent: int, rows: int, knobs: Mapping[str, int | str]
) -> int:
    """The vectors of partial results per row if ``rows`` rows are interleaved."""
    if (wanted := int(knobs.get("partials", 0))) and len(op.body) == 1:
        return wanted
    # Interleaved rows are independent chains as well: together there are about PARTIAL_VECTORS.
    is_long = extent >= LONG_REDUCTION and len(op.body) == 1
    return max(1, PARTIAL_VECTORS // rows) if is_long else 1


def partial_vectors(
    s: te.Schedule,
    op: te.ComputeOp,
    axis: te.IterVar,
    *,
    lanes: int,
    vectors: int = 1,
    attach: tuple[te.Stage, te.IterVar] | None = None,
    row: int | None = None,
) -> te.Stage:
    """Keep ``vectors`` vectors of partial results along ``axis`` in registers.

    They are computed at ``attach`` and combined by a horizontal (tree) reduction. ``row`` is the
    index of the data axis whose rows are interleaved, so that their dependency chains overlap.
    Returns the stage of the partial results.
    """
    tensor = op.output(0)
    _, chunk = s[tensor].split(axis, factor=lanes * vectors)
    # The factored axis is the last one: partial results are lanes of a vector.
    stage = s[one_tensor(s.rfactor(tensor, chunk, -1))]
    around, vector = stage.split(stage.axis[-1], factor=lanes)
    interleaved = [] if row is None else [stage.axis[row]]
    # Rows and vectors inside the reduction: their accumulators are independent chains.
    stage.reorder(*stage.reduce_axis, *interleaved, around, vector)
    stage.vectorize(vector)
    for loop in (*interleaved, around):
        stage.unroll(loop)
    stage.set_scope("local")
    if attach is not None:
        stage.compute_at(*attach)
    reduce_horizontally(s[tensor], lanes)
    return stage


def reduce_horizontally(stage: te.Stage, lanes: int) -> None:
    """Reduce the partial results of ``stage`` vector by vector, then by halves of one vector."""
    stage.pragma(stage.reduce_axis[0], "horizontal_reduce", lanes)


def innermost_vectors(
    stage: te.Stage, data: Sequence[te.IterVar], row: te.IterVar | None, target: CpuTarget
) -> None:
    """Vectorize the last of ``data``; the loop over interleaved rows goes directly around it."""
    *others, last = data
    lanes = target.lanes(stage.tensors[0].dtype)
    around = vectorize_innermost(stage, last, lanes, masks=has_masks(target))
    if row is not None:
        vectors = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
        stage.reorder(*others, *around, row, *vectors)
