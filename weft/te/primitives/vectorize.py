"""``vectorize``: the iterations of a loop become the lanes of vectors."""

from __future__ import annotations

from weft.te.state import AttachAt, StageState
from weft.te.tensor import IterVar
from weft.tir import ForKind, int_value


def vectorize(self: StageState, axis: IterVar) -> None:
    """Compute all iterations of a data axis at once, in vectors of the axis' extent.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> print(s)
    B(100): root
      i.outer in 7
      i.inner in 16
    >>> s[B].vectorize(inner)
    >>> print(s)
    B(100): root
      i.outer in 7
      i.inner in 16: vectorized
    """
    self.require_compute("vectorize")
    self.require_data(axis, "vectorize", "its iterations add into the same elements")
    # The region of a stage that is computed at a loop may be constant; lowering checks that.
    if int_value(axis.extent) is None and not isinstance(self.attach, AttachAt):
        raise self.error(f"vectorize of axis {axis.name}, whose extent {axis.extent} is symbolic",
                         help="split it by the number of lanes and vectorize the inner axis")
    for other, kind in self.kinds.items():
        if kind is ForKind.VECTORIZED and other is not axis:
            raise self.error(f"vectorize of axis {axis.name} beside {other.name}",
                             help="fuse the two loops and vectorize the result")
    for stage in self.schedule.stages:
        at = stage.attach
        if isinstance(at, AttachAt) and at.stage is self and at.axis is axis:
            raise self.error(f"vectorize of axis {axis.name}, at which {stage.name} is computed")
    for ahead in self.prefetches:
        if self.leaf_index(ahead.axis) >= self.leaf_index(axis):
            raise self.error(f"vectorize of axis {axis.name}, inside which {ahead.tensor.name} is "
                             "prefetched")
    self.set_kind(axis, ForKind.VECTORIZED)
