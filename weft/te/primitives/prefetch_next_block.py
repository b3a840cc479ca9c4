"""``prefetch_next_block``: load the block that follows the current one, a share at a time."""

from __future__ import annotations

from weft.te.primitives.prefetch import require_prefetchable
from weft.te.state import Prefetch, Readers, StageState, ceil_div
from weft.te.tensor import IterVar, Tensor
from weft.tir.expr import PrimExpr, const


def prefetch_next_block(
    self: StageState, tensor: Tensor, axis: IterVar, along: IterVar, step: int,
    count: int | None = None,
) -> None:
    """While loop ``axis`` reads a block of ``tensor``, prefetch the block that follows in memory.

    ``count`` consecutive runs of the loop read the same block, those of ``step`` elements each
    along data axis ``along`` (all of that axis by default). Each iteration of each of these runs
    prefetches an equal share into L2: the block has arrived when its first run starts, and no burst
    of hints fills the queue of misses. The block must be contiguous, as a panel of a packed operand
    of a GEMM is, which several tiles of rows read while the next panel arrives.

    >>> k = te.reduce_axis(25, "k")
    >>> B = te.compute((4, 6), lambda i, j: te.sum(A[i * 25 + k] * (j + 1).astype("float32"), k),
    ...                name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 6): root
      i in 4
      j in 6
      k in 25: reduce
    >>> s[B].prefetch_next_block(A, k, B.op.axis[1], 1)
    >>> print(s)
    B(4, 6): root
      i in 4
      j in 6
      k in 25: reduce, prefetch A block ahead
    """
    op = require_prefetchable(self, tensor, axis)
    if along not in op.axis:
        raise self.error(f"prefetch_next_block along {along.name}, which is not a data axis of it")
    for name, value in (("step", step), ("count", 1 if count is None else count)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"prefetch_next_block with {name} {value!r}: it must be a positive "
                             "integer")
    runs: PrimExpr = ceil_div(along.extent, const(step)) if count is None else const(count)
    ahead = Prefetch(tensor, axis, 1, Readers(along, step, runs))
    self.require_ahead(ahead)
    self.prefetches.append(ahead)
