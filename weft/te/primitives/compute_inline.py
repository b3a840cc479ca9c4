"""``compute_inline``: the body of a stage is substituted into its consumers."""

from __future__ import annotations

from weft.te.state import INLINE, AttachAt, StageState
from weft.te.tensor import ExternOp


def compute_inline(self: StageState) -> None:
    """Compute each element where it is read, without a buffer.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((100,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> print(s)
    B(100): root
      i in 100
    C(100): root
      i in 100
    >>> s[B].compute_inline()
    >>> print(s)
    B(100): inline
    C(100): root
      i in 100
    """
    self.require_compute("compute_inline")
    self.require_movable("compute_inline")
    if self.is_output:
        raise self.error("compute_inline of an output: it must be written")
    if self.is_reduction:
        raise self.error("compute_inline of a reduction: it needs loops",
                         help="compute_at the loop of a consumer")
    for other in self.schedule.consumers(self):
        if isinstance(other.op, ExternOp):
            raise self.error(f"compute_inline into {other.name}, whose body reads memory")
    for other in self.schedule.stages:
        if isinstance(other.attach, AttachAt) and other.attach.stage is self:
            raise self.error(f"compute_inline while {other.name} is computed at one of its loops")
    self.attach = INLINE
