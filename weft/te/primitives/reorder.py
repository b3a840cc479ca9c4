"""``reorder``: permute loops."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import IterVar


def reorder(self: StageState, *axes: IterVar) -> None:
    """Put the given loops in this order, at the positions that they occupy together.

    >>> k = te.reduce_axis(100, name="k")
    >>> B = te.compute((4, 8), lambda i, j: te.sum(A[k], axis=k), name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 8): root
      i in 4
      j in 8
      k in 100: reduce
    >>> s[B].reorder(k, B.op.axis[0])
    >>> print(s)
    B(4, 8): root
      k in 100: reduce
      j in 8
      i in 4
    """
    self.require_compute("reorder")
    positions = [self.leaf_index(axis) for axis in axes]
    if len(set(positions)) != len(positions):
        raise self.error("reorder names an axis twice")
    for axis in axes:
        self.require_no_instruction(axis, "reorder")
    for position, axis in zip(sorted(positions), axes, strict=True):
        self.leaf_iter_vars[position] = axis
