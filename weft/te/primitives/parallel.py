"""``parallel``: the iterations of a loop are distributed over threads."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import IterVar
from weft.tir.stmt import ForKind


def parallel(self: StageState, axis: IterVar) -> None:
    """Run the iterations of a data axis on several threads.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s[B].parallel(B.op.axis[0])
    >>> print(s)
    B(100): root
      i in 100: parallel
    """
    self.require_compute("parallel")
    self.require_data(axis, "parallel", "its iterations add into the same elements")
    self.set_kind(axis, ForKind.PARALLEL)
