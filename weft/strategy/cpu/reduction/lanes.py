"""A reduction along contiguous memory: vectors of partial results, combined at the end."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.cpu.common.microkernel import one_tensor
from weft.strategy.cpu.elementwise.injective import vectorize_innermost
from weft.strategy.cpu.machine_model import has_masks
from weft.target import CpuTarget

# A reduction this long gets several vectors of partial results, to hide the latency of adding.
LONG_REDUCTION = 128
PARTIAL_VECTORS = 4
# A shorter reduction is a chain of scalars.
SHORTEST_VECTOR = 4


def lanes_along(extent: int, lanes: int) -> int:
    """The lanes of partial results for a reduction of ``extent``; 1 where it is too short.

    Narrower vectors than the target's serve a short reduction: lanes beyond its end would do
    nothing.
    """
    while lanes > extent:
        lanes //= 2
    return lanes if lanes >= SHORTEST_VECTOR else 1


def vectors_along(op: te.ComputeOp, extent: int, rows: int) -> int:
    """How many vectors of partial results one row gets where ``rows`` run side by side."""
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
    """Keep ``vectors`` of partial results along ``axis`` in registers; combine them in a tree.

    They are computed at ``attach``. ``row`` is the place of the data axis whose rows run side by
    side: their chains of dependent operations overlap. Returns their stage.
    """
    tensor = op.output(0)
    _, chunk = s[tensor].split(axis, factor=lanes * vectors)
    parts = s.rfactor(tensor, chunk, -1)
    stage = s[one_tensor(parts)]
    around, vector = stage.split(stage.axis[-1], factor=lanes)
    beside = [] if row is None else [stage.axis[row]]
    stage.reorder(*stage.reduce_axis, *beside, around, vector)
    stage.vectorize(vector)
    for loop in (*beside, around):
        stage.unroll(loop)
    stage.set_scope("local")
    if attach is not None:
        stage.compute_at(*attach)
    combine_in_a_tree(s[tensor], lanes)
    return stage


def combine_in_a_tree(stage: te.Stage, lanes: int) -> None:
    """Combine the partial results that ``stage`` reduces vector by vector, then by halves."""
    stage.pragma(stage.reduce_axis[0], "horizontal_reduce", lanes)


def innermost_vectors(
    stage: te.Stage, data: Sequence[te.IterVar], row: te.IterVar | None, target: CpuTarget
) -> None:
    """The last of ``data`` as vectors, with rows side by side just around them."""
    *others, last = data
    lanes = target.lanes(stage.tensors[0].dtype)
    around = vectorize_innermost(stage, last, lanes, masks=has_masks(target))
    if row is not None:
        vectors = [axis for axis in stage.leaf_iter_vars if axis in stage.kinds]
        stage.reorder(*others, *around, row, *vectors)
