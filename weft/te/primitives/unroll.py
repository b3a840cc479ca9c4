"""``unroll``: the body of a loop is repeated."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import IterVar
from weft.tir.stmt import ForKind


def unroll(self: StageState, axis: IterVar) -> None:
    """Replicate the body of a loop of constant extent, with a constant index in each copy.

    A stage that is computed for a tile of its consumer has constant extents even where those of its
    tensor are symbolic, so the extent is checked by ``lower``.

    >>> B = te.compute((4, 25), lambda i, j: A[j] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 25): root
      i in 4
      j in 25
    >>> s[B].unroll(B.op.axis[0])
    >>> print(s)
    B(4, 25): root
      i in 4: unrolled
      j in 25
    """
    self.require_compute("unroll")
    self.leaf_index(axis)
    self.set_kind(axis, ForKind.UNROLLED)
