"""Loads into the caches ahead of their use: ``prefetch``, ``prefetch_next_block``."""

from __future__ import annotations

from collections.abc import Sequence

from weft.te.state import INLINE, Prefetch, Readers, StageState, ceil_div
from weft.te.tensor import ComputeOp, IterVar, Tensor
from weft.te.walk import input_tensors
from weft.tir import ForKind, PrimExpr, const


def prefetch(self: StageState, tensor: Tensor, axis: IterVar, offset: int = 1) -> None:
    """In each iteration of loop ``axis``, prefetch what iteration ``current + offset`` reads of
    ``tensor``: one hint per cache line of the bounding box of the reads.

    >>> B = te.compute((4, 25), lambda i, j: A[i * 25 + j] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 25): root
      i in 4
      j in 25
    >>> s[B].prefetch(A, B.op.axis[0], offset=2)
    >>> print(s)
    B(4, 25): root
      i in 4: prefetch A 2 ahead
      j in 25
    """
    require_prefetchable(self, tensor, axis)
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 1:
        raise self.error(f"prefetch {offset!r} iterations ahead: it must be a positive integer")
    ahead = Prefetch(tensor, axis, offset)
    self.require_ahead(ahead)
    self.prefetches.append(ahead)


def require_prefetchable(stage: StageState, tensor: Tensor, axis: IterVar) -> ComputeOp:
    """The compute of ``stage``; raises ``ScheduleError`` if it does not read ``tensor``, or if
    loop ``axis`` is inside a vectorized loop or belongs to an instruction.
    """
    op = stage.require_compute("prefetch")
    depth = stage.leaf_index(axis)
    if tensor not in _read_by(stage):
        raise stage.error(f"prefetch of {getattr(tensor, 'name', tensor)}, which it does not read")
    for leaf in stage.leaf_iter_vars[: depth + 1]:
        if stage.kinds.get(leaf) is ForKind.VECTORIZED:
            raise stage.error(f"prefetch inside the vectorized axis {leaf.name}",
                              help="name an outer loop")
    stage.require_no_instruction(axis, "prefetch in a loop")
    return op


def _read_by(stage: StageState) -> dict[Tensor, None]:
    """The tensors that ``stage`` reads, directly or through inlined stages."""
    found: dict[Tensor, None] = {}
    pending = [stage]
    while pending:
        for tensor in input_tensors(pending.pop().op):
            producer = stage.schedule.stage_of(tensor)
            if tensor not in found and producer.attach == INLINE:
                pending.append(producer)
            found[tensor] = None
    return found


def prefetch_next_block(self: StageState, tensor: Tensor, axis: IterVar,
                        runs: Sequence[tuple[IterVar, int, int | None]],
                        within: IterVar | None = None, distance: int | None = None) -> None:
    """Prefetch the block of ``tensor`` that follows the current one in memory.

    The runs of loop ``within`` read a block several times: ``runs`` names data axes, outermost
    first, with the elements of a run along each and the number of runs (``None``: as many as the
    axis has). Each iteration of loop ``axis``, which is ``within`` itself (the default) or inside
    it, prefetches an equal share into L2. So the block is in L2 when its first run starts, and no
    burst of hints fills the queue of misses. The block must be contiguous, like a panel of a packed
    operand of a GEMM, which several row tiles read while the next panel is loaded. ``distance`` is
    the number of elements from a block to the next one, if the blocks are not adjacent.

    >>> k = te.reduce_axis(25, "k")
    >>> B = te.compute((4, 6), lambda i, j: te.sum(A[i * 25 + k] * (j + 1).astype("float32"), k),
    ...                name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 6): root
      i in 4
      j in 6
      k in 25: reduce
    >>> s[B].prefetch_next_block(A, k, [(B.op.axis[1], 1, None)])
    >>> print(s)
    B(4, 6): root
      i in 4
      j in 6
      k in 25: reduce, prefetch A block ahead
    """
    op = require_prefetchable(self, tensor, axis)
    within = axis if within is None else within
    if self.leaf_index(within) > self.leaf_index(axis):
        raise self.error(f"prefetch_next_block within {within.name}, which is inside {axis.name}")
    if distance is not None and (not isinstance(distance, int) or distance < 1):
        raise self.error(f"prefetch_next_block with distance {distance!r}: it must be a positive "
                         "integer")
    readers = Readers(within, tuple(_checked(self, op, *run) for run in runs), distance)
    ahead = Prefetch(tensor, axis, 1, readers)
    self.require_ahead(ahead)
    self.prefetches.append(ahead)


def _checked(
    stage: StageState, op: ComputeOp, along: IterVar, step: int, count: int | None
) -> tuple[IterVar, int, PrimExpr]:
    """An entry of ``runs`` with the number of runs."""
    if along not in op.axis:
        raise stage.error(f"prefetch_next_block along {along.name}, which is not a data axis of it")
    for name, value in (("step", step), ("count", 1 if count is None else count)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise stage.error(f"prefetch_next_block with {name} {value!r}: it must be a positive "
                              "integer")
    return along, step, ceil_div(along.extent, const(step)) if count is None else const(count)
