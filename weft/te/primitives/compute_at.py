"""``compute_at``: a stage is computed inside a loop of its consumer."""

from __future__ import annotations

from weft.te.state import INLINE, AttachAt, StageState
from weft.te.tensor import IterVar
from weft.tir.stmt import ForKind


def compute_at(self: StageState, stage: StageState, axis: IterVar) -> None:
    """Compute this stage in each iteration of loop ``axis`` of ``stage``.

    Each iteration computes the bounding box of the elements that it reads. All consumers of this
    stage must be inside that loop, which lowering checks.

    >>> B = te.compute((4, 25), lambda i, j: A[j] + 1.0, name="B")
    >>> C = te.compute((4, 25), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> print(s)
    B(4, 25): root
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    >>> s[B].compute_at(s[C], C.op.axis[0])
    >>> print(s)
    B(4, 25): at C.i
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    """
    if self.is_placeholder:
        raise self.error("compute_at of an input: it is computed by the caller")
    self.require_movable("compute_at")
    if self.is_output:
        raise self.error("compute_at of an output: all of it must be written")
    if self is stage or not self.schedule.reads_through(self, stage):
        raise self.error(f"compute_at {stage.name}, which does not read it",
                         help="compute it at one of its consumers")
    if stage.attach == INLINE:
        raise self.error(f"compute_at {stage.name}, which is inlined")
    stage.require_no_instruction(axis, f"compute_at {stage.name}: use")
    # ``check_attachments`` repeats this at lowering, for loops outside of ``axis`` as well, which
    # may be vectorized later.
    if stage.kinds.get(axis) is ForKind.VECTORIZED:
        raise self.error(f"compute_at the vectorized axis {axis.name} of {stage.name}",
                         help="compute it at an outer loop")
    self.attach = AttachAt(stage, axis)
