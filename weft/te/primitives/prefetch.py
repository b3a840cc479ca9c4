"""``prefetch``: load the memory that a later iteration reads into the caches."""

from __future__ import annotations

from weft.te.state import INLINE, Prefetch, StageState
from weft.te.tensor import ComputeOp, IterVar, Tensor
from weft.te.walk import input_tensors
from weft.tir.stmt import ForKind


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
