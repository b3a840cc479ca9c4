"""``prefetch``: load the memory that a later iteration reads into the caches."""

from __future__ import annotations

from weft.te.state import INLINE, Prefetch, StageState
from weft.te.tensor import IterVar, Tensor
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
    self.require_compute("prefetch")
    depth = self.leaf_index(axis)
    if tensor not in _read_by(self):
        raise self.error(f"prefetch of {getattr(tensor, 'name', tensor)}, which it does not read")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 1:
        raise self.error(f"prefetch {offset!r} iterations ahead: it must be a positive integer")
    for leaf in self.leaf_iter_vars[: depth + 1]:
        if self.kinds.get(leaf) is ForKind.VECTORIZED:
            raise self.error(f"prefetch inside the vectorized axis {leaf.name}",
                             help="name an outer loop")
    self.require_no_instruction(axis, "prefetch in a loop")
    ahead = Prefetch(tensor, axis, offset)
    self.require_ahead(ahead)
    self.prefetches.append(ahead)


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
